from sparkwap import overlay


def test_names_go_to_the_side_schema_whatever_their_case() -> None:
    names = overlay.Overlay()
    names.add(("Shop", "Orders"), "shop__dev")
    assert names.schema_of("shop", "ORDERS") == "shop__dev"
    assert names.schema_of("shop", "other") == "shop"
    names.remove(("SHOP", "orders"))
    assert names.side_schema(("shop", "orders")) is None


def test_a_pinned_name_is_read_at_its_snapshot_unless_the_run_has_built_it() -> None:
    names = overlay.Overlay()
    names.pin({("Shop", "Orders"): 7})
    assert names.pinned(("shop", "ORDERS")) == 7
    assert names.pinned(("shop", "other")) is None
    names.add(("shop", "orders"), "shop__dev")
    assert names.pinned(("shop", "orders")) is None


def test_outside_a_run_every_name_stands_at_its_own_place() -> None:
    names = overlay.Overlay()
    names.add(("shop", "orders"), "shop__dev")
    overlay.activate(names)
    assert overlay.active().schema_of("shop", "orders") == "shop__dev"
    overlay.activate(None)
    assert overlay.active().schema_of("shop", "orders") == "shop"
