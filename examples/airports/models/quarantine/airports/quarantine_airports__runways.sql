{{ quarantine(ref('raw_airports__runways')) }}
