{#-
    The gate by hand: dbt run-operation <name> --args '{...}'. Written by scripts/operations.py.
    Unknown arguments come in through `kwargs`, so that the answer can name the legal ones.
-#}

{#- Show the open audit branches: base, candidate, age, and why each table is held. -#}
{% macro wap_status(branch=none) %}
    {%- do _wap_operation("wap_status", dict(kwargs, branch=branch)) -%}
{% endmacro %}

{#- Publish the tables of a held branch, by the test results that it already has. -#}
{% macro wap_publish(branch=none, mode=none, candidates=none) %}
    {%- do _wap_operation("wap_publish", dict(
        kwargs, branch=branch, mode=mode, candidates=candidates
    )) -%}
{% endmacro %}

{#- Accept the failing rows of a test as correct, so that the tables can be published. -#}
{% macro wap_accept(
    branch=none, test=none, reason=none, by=none, until=none
) %}
    {%- do _wap_operation("wap_accept", dict(
        kwargs, branch=branch, test=test, reason=reason, by=by, until=until
    )) -%}
{% endmacro %}

{#- Discard an audit branch, with all tables and rows that exist only on it. -#}
{% macro wap_discard(branch=none, force=none) %}
    {%- do _wap_operation("wap_discard", dict(kwargs, branch=branch, force=force)) -%}
{% endmacro %}

{#- Remove leftovers of runs: old audit branches, old tags, and files that nothing refers to. -#}
{% macro wap_sweep(
    older_than=none, named_older_than=none, files_older_than=none, dry_run=none
) %}
    {%- do _wap_operation("wap_sweep", dict(
        kwargs, older_than=older_than, named_older_than=named_older_than,
        files_older_than=files_older_than, dry_run=dry_run
    )) -%}
{% endmacro %}

{#- Compact tables where it saves more than it takes, and remove history past its age. -#}
{% macro wap_maintain(
    tables=none, budget=none, everything=none, explain=none
) %}
    {%- do _wap_operation("wap_maintain", dict(
        kwargs, tables=tables, budget=budget, everything=everything, explain=explain
    )) -%}
{% endmacro %}

{#- Undo a publish, with all of its tables. -#}
{% macro wap_rollback(run=none, force=none, reopen=none) %}
    {%- do _wap_operation("wap_rollback", dict(kwargs, run=run, force=force, reopen=reopen)) -%}
{% endmacro %}

{#- Erase the rows of some keys from the whole lake, with a proof; without confirm, only plan. -#}
{% macro wap_erase(
    subject=none, keys=none, keys_from=none, ignore=none, unreferenced=none, confirm=none
) %}
    {%- do _wap_operation("wap_erase", dict(
        kwargs, subject=subject, keys=keys, keys_from=keys_from, ignore=ignore,
        unreferenced=unreferenced, confirm=confirm
    )) -%}
{% endmacro %}

{#- Correct personal values of some keys, and erase the old values from the whole lake. -#}
{% macro wap_rectify(
    subject=none, keys=none, keys_from=none, ignore=none, unreferenced=none, confirm=none,
    values=none
) %}
    {%- do _wap_operation("wap_rectify", dict(
        kwargs, subject=subject, keys=keys, keys_from=keys_from, ignore=ignore,
        unreferenced=unreferenced, confirm=confirm, values=values
    )) -%}
{% endmacro %}

{#- Compare a branch with main: columns, added, removed and changed rows, samples. -#}
{% macro wap_diff(
    branch=none, against=none, tables=none, format=none, file=none, sample=none, limit=none
) %}
    {%- do _wap_operation("wap_diff", dict(
        kwargs, branch=branch, against=against, tables=tables, format=format, file=file,
        sample=sample, limit=limit
    )) -%}
{% endmacro %}

{% macro _wap_operation(name, arguments) %}
    {%- for line in adapter.wap.operation(name, arguments) -%}
        {%- do log(line, info=true) -%}
    {%- endfor -%}
{% endmacro %}
