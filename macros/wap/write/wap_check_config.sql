{#- Refuse unsupported configs before anything is written. -#}
{% macro wap_check_config() %}
    {%- set format = config.get("file_format", "iceberg") -%}
    {%- if format != "iceberg" -%}
        {%- do exceptions.raise_compiler_error(
            "file_format is '" ~ format ~ "', but sparkwap writes only Iceberg tables, because "
            ~ "other formats have no branches. Remove the config, or set it to 'iceberg'.") -%}
    {%- endif -%}
    {%- if (config.get("tblproperties") or {}).get("write.wap.enabled", true) | lower != "true" -%}
        {%- do exceptions.raise_compiler_error(
            "tblproperties sets write.wap.enabled to another value than true. Then no audit would "
            ~ "come before readers see the rows. Nothing was built. Remove it: sparkwap sets it.")
        -%}
    {%- endif -%}
    {%- if config.get("contract_types", "family") not in ("family", "exact") -%}
        {%- do exceptions.raise_compiler_error(
            "contract_types is '" ~ config.get("contract_types") ~ "'; it must be 'family' (a "
            ~ "contract compares types without size, precision and scale) or 'exact'.") -%}
    {%- endif -%}
    {%- if config.get("wap_write_mode")
            not in (none, "auto", "copy-on-write", "merge-on-read") -%}
        {%- do exceptions.raise_compiler_error(
            "wap_write_mode is '" ~ config.get("wap_write_mode") ~ "'; it must be 'auto', "
            ~ "'copy-on-write' or 'merge-on-read'.") -%}
    {%- endif -%}
    {%- set unused = [] -%}
    {%- for name in ("clustered_by", "buckets", "options") if config.get(name) -%}
        {%- do unused.append(name) -%}
    {%- endfor -%}
    {%- if unused -%}
        {%- do exceptions.raise_compiler_error(
            "Iceberg tables have no " ~ unused | join(", ") ~ ". Nothing was built. Remove the "
            ~ "config; instead of buckets, use partition_by: bucket(16, id), and instead of "
            ~ "options, tblproperties.") -%}
    {%- endif -%}
    {%- if config.get("grants") -%}
        {%- do exceptions.raise_compiler_error(
            "Open-source Spark has no GRANT, so `grants` cannot be applied. Remove the config, "
            ~ "and grant the rights in the catalog or the object store.") -%}
    {%- endif -%}
{% endmacro %}
