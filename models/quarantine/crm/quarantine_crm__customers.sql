{{ quarantine(ref('raw_crm__customers')) }}
