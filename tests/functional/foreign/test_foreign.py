"""dbt-spark projects that know nothing of sparkwap are gated by the wheel and their profiles.

The class: whatever a project has (disabled models, a package, leftovers, tests on sources) and in
whatever commands it is driven, readers get the tables that plain dbt would have made, and nothing
of what a test has not passed.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from helpers.lake import Reader

from sparkwap import server

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
SEED = "seeds/raw_payments.csv"
TABLES = {
    "raw_payments",
    "stg_payments",
    "fct_payments",
    "payments_by_method",
    "payments_history",
}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has the built wheel, and finds all dependencies where this one has them."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    wheel = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run([*pip, *wheel], check=True)
    (built,) = folder.glob("dbt_sparkwap-*.whl")
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv/bin/python"
    (site,) = (folder / "venv").glob("lib/python*/site-packages")
    # A folder that a .pth file names is searched, but its own .pth files are not read: so the
    # editable install of this working copy stays out.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    subprocess.run(
        [*pip, "--python", str(python), "install", "--no-deps", "--ignore-installed", str(built)],
        check=True,
    )
    return python


@dataclass
class Foreign:
    """A project in a folder of its own."""

    folder: Path
    python: Path
    schema: str
    port: int
    environment: dict[str, str] = field(default_factory=dict)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        environment |= {"SPARK_PORT": str(self.port), "SPARK_SCHEMA": self.schema}
        environment |= self.environment
        return subprocess.run(
            [str(self.python), *command],
            cwd=self.folder,
            env=environment | {"DBT_USE_COLORS": "false"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    def dbt(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run("-c", "from dbt.cli.main import cli; cli()", *arguments)


@pytest.fixture(scope="module")
def foreign(python: Path, lake_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Foreign:
    folder = tmp_path_factory.mktemp("foreign") / "project"
    return copy("project", folder, python, lake_dir)


def copy(project: str, folder: Path, python: Path, lake_dir: Path) -> Foreign:
    """A copy of a project, with its profile changed."""
    shutil.copytree(HERE / project, folder)
    profile = folder / "profiles.yml"
    # All that changes: the type, and where the catalog is that the Spark server uses.
    place = f"uri: 'sqlite:///{lake_dir}/catalog.db', warehouse: 'file://{lake_dir}/warehouse'"
    catalog = f"{{type: sql, {place}}}"
    profile.write_text(
        profile.read_text().replace("type: spark\n", f"type: sparkwap\n      catalog: {catalog}\n")
    )
    status = server.status(lake_dir)
    assert status is not None
    schema = f"foreign_{secrets.token_hex(2)}"
    return Foreign(folder, python, schema, status.endpoint.thrift_port)


def test_the_wheel_carries_adapter_and_macros(foreign: Foreign) -> None:
    code = """if True:
        from pathlib import Path
        import dbt.adapters.sparkwap, dbt.include.sparkwap, sparkwap
        print(Path(sparkwap.__file__).parents[1], Path(dbt.adapters.sparkwap.__file__).parents[3])
        macros = Path(dbt.include.sparkwap.__file__).parent / "macros"
        print(len(list(macros.rglob("*.sql"))))
    """
    shown = foreign.run("-c", code)
    first, second, macros = shown.stdout.split()
    assert Path(first) == Path(second), shown.stdout
    assert Path(first).is_relative_to(foreign.python.parents[1])
    assert int(macros) == len(list((ROOT / "macros").rglob("*.sql")))


def test_foreign_project_is_gated(foreign: Foreign, reader: Reader) -> None:
    first = foreign.dbt("build")
    assert first.returncode == 0, first.stdout
    published = reader.look(foreign.schema)
    assert set(published) == TABLES
    assert published["fct_payments"].values("payment_id") == [1, 2, 3]

    seed = foreign.folder / SEED
    good = seed.read_text() + "4,12,transfer,700,2024-05-03 10:00:00\n"
    seed.write_text(good + "5,12,barter,-300,2024-05-03 10:00:00\n")
    bad = foreign.dbt("build")
    assert bad.returncode == 1, bad.stdout
    assert "accepted_values_stg_payments" in bad.stdout
    assert "Nothing was published" in bad.stdout
    assert seen(reader, foreign.schema) == {n: look.seen() for n, look in published.items()}

    seed.write_text(good)
    fixed = foreign.dbt("build")
    assert fixed.returncode == 0, fixed.stdout
    now = reader.look(foreign.schema)
    assert now["fct_payments"].values("payment_id") == [1, 2, 3, 4]
    assert now["payments_by_method"].values("method") == ["card", "coupon", "transfer"]
    assert len(now["payments_history"].rows) == 4


MAY_3 = "12,1,4990,2024-05-03 08:00:00\n"
FIRST = {"orders": [10, 11], "customers": [(1, 1), (2, 1)], "history": ["Ada", "Grace"]}
SECOND = {
    "orders": [10, 11, 12],
    "customers": [(1, 2), (2, 1)],
    "history": ["Ada", "Ada L.", "Grace"],
}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("seed run snapshot test", "build"),
        ("build", "seed run test:orders,customers snapshot test"),
        ("seed run:+stg_customers,+stg_orders snapshot run:marts test", "seed build"),
    ],
)
def test_any_order_of_commands_makes_the_tables_of_a_shop(
    python: Path, lake_dir: Path, reader: Reader, tmp_path: Path, first: str, second: str
) -> None:
    shop = copy("shop", tmp_path / "shop", python, lake_dir)
    shop.environment["WEB_SCHEMA"] = f"{shop.schema}_web"
    reader.catalog.create_namespace(f"{shop.schema}_web")
    visits = pa.table({"customer_id": pa.array([1, 1, 2], "int64")})
    reader.catalog.create_table((f"{shop.schema}_web", "visits"), visits.schema).append(visits)
    assert shop.dbt("deps").returncode == 0

    drive(shop, first)
    assert made(reader, shop.schema) == FIRST
    orders = shop.folder / "seeds/raw_orders.csv"
    orders.write_text(orders.read_text() + MAY_3)
    customers = shop.folder / "seeds/raw_customers.csv"
    customers.write_text(customers.read_text().replace("Ada", "Ada L."))
    drive(shop, second)
    assert made(reader, shop.schema) == SECOND


def drive(project: Foreign, steps: str) -> None:
    """Run `seed run:a,b test` as three commands, each of which succeeds."""
    for step in steps.split():
        command, _, chosen = step.partition(":")
        done = project.dbt(command, *(("--select", *chosen.split(",")) if chosen else ()))
        assert done.returncode == 0, done.stdout


def made(reader: Reader, schema: str) -> dict[str, object]:
    """What a reader of `main` sees of the shop."""
    found = reader.look(schema)
    assert set(found) == {
        *("raw_customers", "raw_orders", "stg_customers", "stg_orders"),
        *("orders", "customers", "customers_history"),
    }
    return {
        "orders": found["orders"].values("order_id"),
        "customers": found["customers"].values("customer_id", "orders"),
        "history": sorted(found["customers_history"].values("first_name")),
    }


def seen(reader: Reader, schema: str) -> dict[str, tuple[object, ...]]:
    return {name: look.seen() for name, look in reader.look(schema).items()}
