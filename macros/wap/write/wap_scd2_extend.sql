{#-
    Bring a history up to its log, at a cost that follows the change.

    Of the log's batches that are new, each key takes one of three paths:
      - follow: the events come after all that was seen of the key; its current version and they
        are enough
      - new: the log has nothing older of the key; the events are enough
      - late: anything else, such as a late event or a key that was deleted; its history is built
        again from the log
    Only rows that came out different are written. The log beyond the new batches is read only if
    there are keys without a current version (their keys alone) or late ones.
-#}
{% macro wap_scd2_extend(relation, history, on_schema_change) %}
    {%- set marks = wap_scd2_marks(relation, history["surrogate_key"]) -%}
    {%- set shape = wap_temporary_view(relation, wap_scd2_shape(history)) -%}
    {%- set columns = wap_place_increment(relation, shape, on_schema_change, widen=true) -%}
    {%- set missing = wap_scd2_columns(history) | reject("in", columns) | list -%}
    {%- set history = dict(
        history, payload=history["payload"] | reject("in", missing) | list,
        tracked=history["tracked"] | reject("in", missing) | list) -%}
    {#- A run that failed may have left its own in the session. -#}
    {%- set stage = relation.identifier ~ "_" ~ invocation_id[:8] ~ "_" -%}
    {%- do _wap_scd2_stage(stage ~ "increment", _wap_scd2_increment_sql(history, marks)) -%}
    {%- set increment = _wap_scd2_look(stage, history, marks) -%}
    {%- if increment["events"] or increment["all"] or increment["restate"] -%}
        {%- do _wap_scd2_sort_keys(stage, relation, history, marks, increment) -%}
        {%- set changes = _wap_scd2_changes_sql(stage, relation, history, marks, increment) -%}
        {%- do _wap_scd2_stage(stage ~ "changes", changes) -%}
        {%- if _wap_scd2_one("select count(*) from " ~ stage ~ "changes")[0] -%}
            {%- call statement("main") -%}
                {{ _wap_scd2_merge(stage, relation, history, increment) }}
            {%- endcall -%}
        {%- endif -%}
    {%- endif -%}
    {%- do store_raw_result("main", message="OK", code="OK", rows_affected="-1")
        if not load_result("main") -%}
    {%- for name in ["changes", "late", "keys", "increment"] -%}
        {%- do run_query("drop view if exists " ~ stage ~ name) -%}
    {%- endfor -%}
{% endmacro %}

{#-
    How far the table is: the batch that was read last, and the highest surrogate key, both from
    the bounds that Iceberg keeps of its files, without reading rows.
-#}
{% macro wap_scd2_marks(relation, surrogate=none) %}
    {%- set wanted = ["_batch"] + ([surrogate] if surrogate else []) -%}
    {%- set found = _wap_scd2_one(
        "select " ~ _wap_scd2_bounds(wanted) ~ ", count_if(readable_metrics._batch.upper_bound "
        ~ "is null) from " ~ relation ~ ".files where content = 0") -%}
    {%- if found[-1] or found[0] is none or (surrogate and found[1] is none) -%}
        {%- set columns = [] -%}
        {%- for name in wanted -%}
            {%- do columns.append("max(" ~ adapter.quote(name) ~ ")") -%}
        {%- endfor -%}
        {%- set found = _wap_scd2_one("select " ~ columns | join(", ") ~ " from " ~ relation) -%}
    {%- endif -%}
    {{ return({
        "batch": found[0] if found[0] is not none else -1,
        "number": (found[1] if surrogate else none) or 0,
    }) }}
{% endmacro %}

{% macro _wap_scd2_bounds(columns) -%}
    {%- for column in columns -%}
    max(readable_metrics.{{ adapter.quote(column) }}.upper_bound){{ ", " if not loop.last }}
    {%- endfor -%}
{%- endmacro %}

{% macro _wap_scd2_increment_sql(history, marks) -%}
    select * from ({{ history["sql"] }}) where _batch > {{ marks["batch"] }}
{%- endmacro %}

{#-
    returns: dict of
        events    rows of the increment
        batch     the last batch
        resets    whether a truncate or a full load is among them
        partial   whether one of them leaves columns out
        all       whether all keys have to be built again, as such a one is late
        restate   SQL: the keys that the var `scd2_restate` names; None for none
-#}
{% macro _wap_scd2_look(stage, history, marks) %}
    {%- set found = _wap_scd2_one(
        "select count(*), max(_batch), "
        ~ "min(if(_op in ('truncate', 'full_load'), _sequence, null)), "
        ~ ("count(_absent)" if history["partial"] else "0") ~ " from "
        ~ stage ~ "increment") -%}
    {%- set resets = found[2] is not none -%}
    {%- set older = none -%}
    {%- if resets -%}
        {%- set older -%}
            select count(*) from (
                select 1 from ({{ history["sql"] }})
                where _batch <= {{ marks["batch"] }}
                    and (
                        _sequence >= {{ wap_string(found[2]) }}
                        {%- if history["loads"] %}
                        or (
                            _op = 'full_load' and _load_date in (
                                select _load_date from {{ stage }}increment
                                where _op = 'full_load'
                            )
                        )
                        {%- endif %}
                    )
                limit 1
            )
        {%- endset -%}
    {%- endif -%}
    {{ return({
        "events": found[0],
        "batch": found[1] if found[1] is not none else marks["batch"],
        "resets": resets,
        "partial": found[3] > 0,
        "all": (_wap_scd2_one(older)[0] > 0) if older is not none else false,
        "restate": wap_scd2_restated(model.name),
    }) }}
{% endmacro %}

{#- Which keys of this model to build again, by the var `scd2_restate`. -#}
{% macro wap_scd2_restated(name) %}
    {%- set asked = var("scd2_restate", none) -%}
    {%- set asked = asked if asked is sequence and asked is not mapping and asked is not string
        else ([asked] if asked else []) -%}
    {%- set found = [] -%}
    {%- for one in asked -%}
        {%- if one is not mapping or not one.get("model") or not one.get("where") -%}
            {%- do exceptions.raise_compiler_error(
                "scd2_restate is '" ~ one ~ "'; it takes model and where, such as "
                ~ "{model: dim_customers, where: \"customer_id between 1 and 100\"}. "
                ~ "Nothing was built.") -%}
        {%- endif -%}
        {%- if one["model"] == name -%}{%- do found.append("(" ~ one["where"] ~ ")") -%}{%- endif -%}
    {%- endfor -%}
    {{ return(found | join(" or ") if found else none) }}
{% endmacro %}

{#- Stage `keys`: the keys of the increment with their path; and `late`, those on that path. -#}
{% macro _wap_scd2_sort_keys(stage, relation, history, marks, increment) %}
    {%- if increment["all"] -%}{{ return("") }}{%- endif -%}
    {%- set key = adapter.wap_quoted(history["keys"]) | join(", ") -%}
    {%- do _wap_scd2_stage(
        stage ~ "keys", _wap_scd2_paths_sql(stage, relation, history, increment)) -%}
    {%- set found = _wap_scd2_ranges(history, stage ~ "keys", ["late", "unknown"]) -%}
    {%- set late, unknown = found["late"], found["unknown"] -%}
    {%- set looked_for = unknown["count"] > 0 and marks["batch"] >= 0 -%}
    {%- if not looked_for and not increment["restate"] and not late["count"] -%}
        {%- do increment.update({"late": late}) -%}
        {{ return("") }}
    {%- endif -%}
    {%- set keys -%}
        select {{ key }} from {{ stage }}keys where _path = 'late'
        {%- if looked_for %}
        union
        select {{ key }}
        from ({{ history["sql"] }}) as logged
        left semi join {{ stage }}keys as known
            on {{ _wap_scd2_same("logged", "known", history["keys"]) }} and known._path = 'unknown'
        where logged._batch <= {{ marks["batch"] }}
            {{- _wap_scd2_within(history, "logged", unknown) }}
        {%- endif %}
        {%- if increment["restate"] %}
        union
        select {{ key }} from ({{ history["sql"] }})
        where _op not in ('truncate', 'full_load') and ({{ increment["restate"] }})
        union
        select {{ key }} from {{ relation }} where {{ increment["restate"] }}
        {%- endif %}
    {%- endset -%}
    {%- do _wap_scd2_stage(stage ~ "late", keys) -%}
    {%- do increment.update(_wap_scd2_ranges(history, stage ~ "late", ["late"])) -%}
{% endmacro %}

{% macro _wap_scd2_paths_sql(stage, relation, history, increment) -%}
    {%- set key = adapter.wap_quoted(history["keys"]) | join(", ") -%}
    {%- set columns = history["keys"] -%}
    with touched as (

        select
            {{ key }},
            min(_sequence) as _first_sequence,
            min({{ _wap_scd2_time(history["grain"], "_event_time") }}) as _first_time
            {%- if history["partial"] %},
            bool_or(_absent is not null) as _is_partial
            {%- endif %}
        from {{ stage }}increment
        where _op not in ('truncate', 'full_load')
        group by {{ key }}

    ),

    heads as (

        select {{ key }}, valid_from, change_flag, _sequence, _event_time
        from {{ relation }}
        where is_current

    )

    {%- if increment["resets"] %},

    resets as (

        select
            resets[0].at.sequence as _sequence,
            array_min(transform(resets, one -> one.time)) as _time
        from ({{ wap_scd2_resets(history, "select * from " ~ stage ~ "increment") }})

    )

    select
        {%- for column in adapter.wap_quoted(columns) %}
        coalesce(touched.{{ column }}, heads.{{ column }}) as {{ column }},
        {%- endfor %}
    {%- else %}

    select
        {%- for column in adapter.wap_quoted(columns) %}
        touched.{{ column }},
        {%- endfor %}
    {%- endif %}
        case
            when heads.valid_from is null then 'unknown'
            when {{ _wap_scd2_follows(history, increment) }} then 'follow'
            else 'late'
        end as _path
    from touched
    {{ "full outer" if increment["resets"] else "left" }} join heads
        on {{ _wap_scd2_same("touched", "heads", columns) }}
    {{- " cross join resets" if increment["resets"] }}
{%- endmacro %}

{#-
    Whether all events of a key come after what was seen of it. One that is not later than the
    start of the current version may undo that version, so that the one before it goes on.
-#}
{% macro _wap_scd2_follows(history, increment) -%}
    {%- set sequence = "least(touched._first_sequence, resets._sequence)"
        if increment["resets"] else "touched._first_sequence" -%}
    {%- set time = "least(touched._first_time, resets._time)"
        if increment["resets"] else "touched._first_time" -%}
    {{ sequence }} > heads._sequence
        and greatest({{ time }}, heads._event_time) > heads.valid_from
    {%- if history["partial"] and history["tracked"] != history["payload"] %}
        {#- The current version has the other columns as they were when it began. #}
        and not coalesce(touched._is_partial, false)
    {%- elif history["partial"] %}
        and not (coalesce(touched._is_partial, false) and heads.change_flag = 'D')
    {%- endif %}
{%- endmacro %}

{#-
    Of each path: the number of keys, and the bounds of the first key column, to skip files by.
    A single path is all that there is.
-#}
{% macro _wap_scd2_ranges(history, keys, paths) %}
    {%- set first = adapter.quote(history["keys"][0]) -%}
    {%- set wanted, ranges = [], {} -%}
    {%- for path in paths -%}
        {%- set of = " filter (where _path = " ~ wap_string(path) ~ ")" if paths | length > 1 else "" -%}
        {%- do wanted.append(
            "count(*)" ~ of ~ ", cast(min(" ~ first ~ ")" ~ of ~ " as string), cast(max("
            ~ first ~ ")" ~ of ~ " as string)") -%}
    {%- endfor -%}
    {%- set found = _wap_scd2_one("select " ~ wanted | join(", ") ~ " from " ~ keys) -%}
    {%- for path in paths -%}
        {%- set at = loop.index0 * 3 -%}
        {%- do ranges.update({path: {
            "count": found[at], "least": found[at + 1], "greatest": found[at + 2]}}) -%}
    {%- endfor -%}
    {{ return(ranges) }}
{% endmacro %}

{% macro _wap_scd2_within(history, table, range) -%}
    {%- set type = history["types"][history["keys"][0]] -%}
    {%- if type.split("(")[0] in ("string", "int", "bigint", "date", "decimal") %}
        and {{ table }}.{{ adapter.quote(history["keys"][0]) }} between
            cast({{ wap_string(range["least"]) }} as {{ type }})
            and cast({{ wap_string(range["greatest"]) }} as {{ type }})
    {%- endif -%}
{%- endmacro %}

{#- What has to change in the table: each row with an `_action`. -#}
{% macro _wap_scd2_changes_sql(stage, relation, history, marks, increment) -%}
    {%- set same = history["keys"] + ["valid_from"] -%}
    {%- set own = history["payload"] + _wap_scd2_made() + ["_sequence", "_event_time"] -%}
    {%- set surrogate = history["surrogate_key"] -%}
    with wanted as (

        {{ _wap_scd2_wanted_sql(stage, relation, history, increment) | indent(8) }}

    ),

    present as (

        {{ _wap_scd2_present_sql(stage, relation, history, increment) | indent(8) }}

    ),

    compared as (

        select
            {%- for column in adapter.wap_quoted(same) %}
            coalesce(wanted.{{ column }}, present.{{ column }}) as {{ column }},
            {%- endfor %}
            {%- for column in adapter.wap_quoted(own) if column != "`valid_from`" %}
            wanted.{{ column }},
            {%- endfor %}
            {%- if surrogate %}
            present.{{ adapter.quote(surrogate) }} as _number,
            {%- endif %}
            case
                when present.valid_from is null then 'insert'
                when wanted.valid_from is null then 'delete'
                else 'update'
            end as _action
        from wanted
        full outer join present
            on {{ _wap_scd2_same("wanted", "present", same) }}
        where wanted.valid_from is null
            or present.valid_from is null
            {%- for column in adapter.wap_quoted(own) if column != "`valid_from`" %}
            or not (wanted.{{ column }} <=> present.{{ column }})
            {%- endfor %}

    )

    select
        *,
        {%- if surrogate %}
        cast(coalesce(_number, {{ marks["number"] }} + row_number() over (
            partition by _action
            order by valid_from, {{ adapter.wap_quoted(history["keys"]) | join(", ") }}
        )) as bigint) as {{ adapter.quote(surrogate) }},
        {%- endif %}
        cast({{ increment["batch"] }} as bigint) as _batch
    from compared
{%- endmacro %}

{#- The versions that the touched keys should have. -#}
{% macro _wap_scd2_wanted_sql(stage, relation, history, increment) -%}
    {%- set late = not increment["all"] and increment["late"]["count"] > 0 -%}
    {%- set logged = late or increment["all"] -%}
    {%- set met = wap_scd2_met(history) if logged else increment -%}
    {%- set history = dict(history, partial=met["partial"]) -%}
    {%- set steps -%}
        {%- if increment["all"] -%}
        {{ wap_scd2_events(history, history["sql"]) }}
        {%- else -%}
        {{ wap_scd2_heads(history, _wap_scd2_head_rows(stage, relation, history, late)) }}
        union all
        {{ wap_scd2_events(history, _wap_scd2_new_events(stage, history, late)) }}
        {%- endif -%}
        {%- if late %}
        union all
        {{ wap_scd2_events(
            history, _wap_scd2_late_rows(stage, history, increment, history["sql"])) }}
        {%- endif -%}
    {%- endset -%}
    {#- Old resets meet late keys only: what follows on a current version comes after them. -#}
    {%- set source = history["sql"] if logged else "select * from " ~ stage ~ "increment" -%}
    {{ wap_scd2_versions(
        history, steps, wap_scd2_resets(history, source) if met["resets"] else none) }}
{%- endmacro %}

{#- The rows that the table has of the touched keys. -#}
{% macro _wap_scd2_present_sql(stage, relation, history, increment) -%}
    {%- if increment["all"] -%}
    select * from {{ relation }}
    {%- else -%}
    {{ _wap_scd2_head_rows(stage, relation, history, increment["late"]["count"] > 0) }}
    {%- if increment["late"]["count"] > 0 %}
    union all
    {{ _wap_scd2_late_rows(stage, history, increment, "select * from " ~ relation) }}
    {%- endif %}
    {%- endif -%}
{%- endmacro %}

{#- Current versions of the keys that go on from them. -#}
{% macro _wap_scd2_head_rows(stage, relation, history, late) -%}
    select head.*
    from {{ relation }} as head
    left semi join {{ stage }}keys as known
        on {{ _wap_scd2_same("head", "known", history["keys"]) }} and known._path = 'follow'
    {%- if late %}
    left anti join {{ stage }}late as late
        on {{ _wap_scd2_same("head", "late", history["keys"]) }}
    {%- endif %}
    where head.is_current
{%- endmacro %}

{#- Events of keys that are not late. -#}
{% macro _wap_scd2_new_events(stage, history, late) -%}
    select event.*
    from {{ stage }}increment as event
    {%- if late %}
    left anti join {{ stage }}late as late
        on {{ _wap_scd2_same("event", "late", history["keys"]) }}
    {%- endif %}
{%- endmacro %}

{#- Rows of late keys. -#}
{% macro _wap_scd2_late_rows(stage, history, increment, source) -%}
    select known.*
    from ({{ source }}) as known
    left semi join {{ stage }}late as late
        on {{ _wap_scd2_same("known", "late", history["keys"]) }}
    where true{{ _wap_scd2_within(history, "known", increment["late"]) }}
{%- endmacro %}

{% macro _wap_scd2_merge(stage, relation, history, increment) -%}
    {%- set columns = adapter.wap_quoted(wap_scd2_columns(history)) -%}
    merge into {{ relation }} as DBT_INTERNAL_DEST
    using {{ stage }}changes as DBT_INTERNAL_SOURCE
    on {{ _wap_scd2_same(
        "DBT_INTERNAL_DEST", "DBT_INTERNAL_SOURCE", history["keys"] + ["valid_from"]) }}
    {#- What follows on current versions leaves the closed ones, and their files, alone. #}
    {%- if not increment["all"] %}
        and (
            DBT_INTERNAL_DEST.is_current
            {%- if increment["late"]["count"] > 0 %}
            or (true{{ _wap_scd2_within(history, "DBT_INTERNAL_DEST", increment["late"]) }})
            {%- endif %}
        )
    {%- endif %}
    when matched and DBT_INTERNAL_SOURCE._action = 'delete' then delete
    when matched then update set
        {%- for column in columns %}
        {{ column }} = DBT_INTERNAL_SOURCE.{{ column }}{{ "," if not loop.last }}
        {%- endfor %}
    when not matched then insert ({{ columns | join(", ") }})
        values (
            {%- for column in columns -%}
            DBT_INTERNAL_SOURCE.{{ column }}{{ ", " if not loop.last }}
            {%- endfor -%}
        )
{%- endmacro %}

{#-
    A step's rows under a name, kept in the session: they are read more than once. The first query,
    which follows at once and counts them, makes them: an eager cache would count on its own.
-#}
{% macro _wap_scd2_stage(name, sql) %}
    {%- do run_query("cache lazy table " ~ name ~ " as\n" ~ sql) -%}
{% endmacro %}

{#- The only row of a query, as a list. -#}
{% macro _wap_scd2_one(sql) %}
    {{ return(run_query(sql).rows[0].values() | list) }}
{% endmacro %}
