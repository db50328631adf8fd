{{ quarantine(ref('raw_postal__addresses')) }}
