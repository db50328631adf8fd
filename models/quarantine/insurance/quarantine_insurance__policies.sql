{{ quarantine(ref('raw_insurance__policies')) }}
