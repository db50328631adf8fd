from sparkwap.runs import relation_overlay


def test_the_overlay_is_case_sensitive() -> None:
    names = relation_overlay.Overlay()
    names.add(("Shop", "Orders"), "Shop__dev")
    assert names.schema_of("Shop", "Orders") == "Shop__dev"
    assert names.schema_of("Shop", "orders") == "Shop"
    assert names.schema_of("shop", "Orders") == "shop"
    names.remove(("Shop", "orders"))
    assert names.side_schema(("Shop", "Orders")) == "Shop__dev"
    names.remove(("Shop", "Orders"))
    assert names.side_schema(("Shop", "Orders")) is None


def test_a_pinned_name_is_read_at_its_snapshot_unless_the_run_has_built_it() -> None:
    names = relation_overlay.Overlay()
    names.pin({("shop", "orders"): 7})
    assert names.pinned(("shop", "orders")) == 7
    assert names.pinned(("shop", "ORDERS")) is None
    assert names.pinned(("shop", "other")) is None
    names.add(("shop", "orders"), "shop__dev")
    assert names.pinned(("shop", "orders")) is None


def test_outside_a_run_the_overlay_is_empty() -> None:
    names = relation_overlay.Overlay()
    names.add(("shop", "orders"), "shop__dev")
    relation_overlay.activate(names)
    assert relation_overlay.active().schema_of("shop", "orders") == "shop__dev"
    relation_overlay.activate(None)
    assert relation_overlay.active().schema_of("shop", "orders") == "shop"
