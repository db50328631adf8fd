{#-
    The published state of `relation`, as readers of main see it now, for audits that compare the
    candidate with it.

    returns: SQL for a from clause, or none if nothing is published yet
    example: {% set published = wap_published(model) %}
             {% if published %} select count(*) from {{ published }} {% endif %}
-#}
{% macro wap_published(relation) %}
    {{ return(adapter.wap.published(relation)) }}
{% endmacro %}
