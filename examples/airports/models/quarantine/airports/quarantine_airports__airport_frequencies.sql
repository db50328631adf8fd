{{ quarantine(ref('raw_airports__airport_frequencies')) }}
