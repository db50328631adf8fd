{#-
    The gate by hand: dbt run-operation <name> --args '{...}'. Unknown arguments come in through
    `kwargs`, so that the answer can name the legal ones.
-#}

{#- Open audit branches: base, candidate, age, and why each table is held. -#}
{% macro wap_status(branch=none) %}
    {%- do _wap_operation("wap_status", {"branch": branch}, kwargs) -%}
{% endmacro %}

{#- Publish what a held branch has, by the tests that it has passed. -#}
{% macro wap_publish(branch=none, mode=none) %}
    {%- do _wap_operation("wap_publish", {"branch": branch, "mode": mode}, kwargs) -%}
{% endmacro %}

{#- Put on record that what a test rejected is right as it is, so that it can be published. -#}
{% macro wap_accept(branch=none, test=none, reason=none, by=none, until=none) %}
    {%- set arguments = {"branch": branch, "test": test, "reason": reason, "by": by} -%}
    {%- do arguments.update({"until": until}) -%}
    {%- do _wap_operation("wap_accept", arguments, kwargs) -%}
{% endmacro %}

{#- Drop an audit branch and all that exists only on it. -#}
{% macro wap_discard(branch=none, force=none) %}
    {%- do _wap_operation("wap_discard", {"branch": branch, "force": force}, kwargs) -%}
{% endmacro %}

{#- Take away what runs have left behind: old audit branches, tags, files to which nothing refers. -#}
{% macro wap_sweep(older_than=none, named_older_than=none, files_older_than=none, dry_run=none) %}
    {%- set arguments = {"older_than": older_than, "named_older_than": named_older_than} -%}
    {%- do arguments.update({"files_older_than": files_older_than, "dry_run": dry_run}) -%}
    {%- do _wap_operation("wap_sweep", arguments, kwargs) -%}
{% endmacro %}

{#- Undo a publish: all of its tables in one transaction. -#}
{% macro wap_rollback(run=none, force=none, reopen=none) %}
    {%- set arguments = {"run": run, "force": force, "reopen": reopen} -%}
    {%- do _wap_operation("wap_rollback", arguments, kwargs) -%}
{% endmacro %}

{#- Take the rows of some keys out of the whole lake, with proof; tells the plan unless confirmed. -#}
{% macro wap_erase(subject=none, keys=none, keys_from=none, ignore=none, confirm=none) %}
    {%- set arguments = {"subject": subject, "keys": keys, "keys_from": keys_from} -%}
    {%- do arguments.update({"ignore": ignore, "confirm": confirm}, **kwargs) -%}
    {%- do _wap_tell(adapter.wap_erasure("wap_erase", arguments)) -%}
{% endmacro %}

{#- Put personal values of some keys right, and forget the former ones, likewise. -#}
{% macro wap_rectify(
    subject=none, keys=none, keys_from=none, values=none, ignore=none, confirm=none
) %}
    {%- set arguments = {"subject": subject, "keys": keys, "keys_from": keys_from} -%}
    {%- do arguments.update({"values": values, "ignore": ignore, "confirm": confirm}, **kwargs) -%}
    {%- do _wap_tell(adapter.wap_erasure("wap_rectify", arguments)) -%}
{% endmacro %}

{#- What a branch changes against main: columns, rows added, removed and changed, samples. -#}
{% macro wap_diff(
    branch=none, against=none, tables=none, format=none, output=none, sample=none, limit=none
) %}
    {%- set arguments = {"branch": branch, "against": against, "tables": tables} -%}
    {%- do arguments.update({"format": format, "output": output, "sample": sample}) -%}
    {%- do arguments.update({"limit": limit}, **kwargs) -%}
    {%- do _wap_tell(adapter.wap_diff(arguments)) -%}
{% endmacro %}

{% macro _wap_operation(name, arguments, others) %}
    {%- do arguments.update(others) -%}
    {%- do _wap_tell(adapter.wap_operation(name, arguments)) -%}
{% endmacro %}

{% macro _wap_tell(lines) %}
    {%- for line in lines -%}
        {%- do log(line, info=true) -%}
    {%- endfor -%}
{% endmacro %}
