{{ quarantine(ref('raw_building__readings')) }}
