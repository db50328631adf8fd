{{ quarantine(ref('raw_insurance__products')) }}
