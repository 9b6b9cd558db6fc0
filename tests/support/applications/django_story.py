"""What a Django application does with its rows, in a process of its own: `python -m` this module, with a folder.

It runs on the example's project, with more models.
"""

import json
import logging
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import django

django.setup()

from django.core.management import call_command  # noqa: E402
from django.db import IntegrityError, connection, models, transaction  # noqa: E402
from django.db.models.signals import pre_save  # noqa: E402
from django.test.utils import CaptureQueriesContext  # noqa: E402
from django.urls import path, register_converter  # noqa: E402
from shop.models import Order, OrderItem  # noqa: E402

from allocator import PublicIds  # noqa: E402
from allocator.integrations.django import AllocatedBigAutoField, allocator, give_ids  # noqa: E402
from support.applications.django_chapters import chapter, model, same, tell_all  # noqa: E402
from support.distinct import distinct  # noqa: E402


def story(name: str, base: type = models.Model, /, table: str = "", **fields: Any) -> Any:
    return model("story", name, base, {"db_table": table or name.lower()}, **fields)


class Key32(AllocatedBigAutoField):
    def get_internal_type(self) -> str:
        return "IntegerField"


Stamped = model("story", "Stamped", meta={"abstract": True}, id=AllocatedBigAutoField())
Place = story("Place", Stamped, name=models.CharField(max_length=50))
Restaurant = story("Restaurant", Place, orders=models.ManyToManyField(Order))
Shelf = story("Shelf")  # its key is that of `DEFAULT_AUTO_FIELD`
Left = story("Left", table="left_of_both", id=AllocatedBigAutoField(tag="both"))  # their ids are unique together
Right = story("Right", table="right_of_both", id=AllocatedBigAutoField(tag="both"))
Third = story("Third", table="third_of_both", id=AllocatedBigAutoField(tag="both"))
Old = story("Old", id=models.BigAutoField(primary_key=True))  # numbered by the database until now
Taken = model("story", "Taken", meta={"db_table": "old", "managed": False}, id=AllocatedBigAutoField())  # afterwards
Narrow = story("Narrow", id=Key32(), parent=models.ForeignKey("self", models.CASCADE, null=True))  # both of 32 bits
Older = story("Older", id=Key32())  # its tag was made before
Bin = story("Bin", id=AllocatedBigAutoField(), code=models.CharField(max_length=10, unique=True))

Parcel = hasattr(models, "CompositePrimaryKey") and story(  # before Django 5.2 there is none
    "Parcel",
    pk=models.CompositePrimaryKey("tenant", "id"),
    tenant=models.BigIntegerField(),
    id=AllocatedBigAutoField(primary_key=False),
    code=models.CharField(max_length=10),
)

KIND = connection.vendor
folder = Path(sys.argv[1])


def statements(act) -> list[str]:
    with CaptureQueriesContext(connection) as seen:
        act()
    return [query["sql"].split()[0].strip("(") for query in seen.captured_queries]


def create(*kinds: type[models.Model]) -> None:
    with connection.schema_editor() as editor:
        for model in kinds:
            editor.create_model(model)


def counters(table: str) -> list[str]:
    """What PostgreSQL has to number a table."""
    with connection.cursor() as cursor:
        return [one["name"] for one in connection.introspection.get_sequences(cursor, table) if one.get("name")]


@chapter
def migrations_are_stable_and_a_key_is_a_plain_bigint() -> None:
    call_command("migrate", verbosity=0)
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)  # ends the process where something is found
    with connection.cursor() as cursor:
        described = connection.introspection.get_table_description(cursor, "shop_orderitem")
        kinds = {one.name: connection.introspection.get_field_type(one.type_code, one) for one in described}
    key = Order._meta.pk
    same(sorted(key.deconstruct()[3]), ["primary_key", "serialize"])
    same(kinds["order_id"], "BigIntegerField")
    same([key.db_type(connection), key.rel_db_type(connection)], ["bigint", "bigint"])
    same(counters("shop_order"), [])
    place = {"sqlite": "shop.ids.sqlite3", "postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql"}
    assert place[KIND] in repr(allocator()), allocator()


@chapter
def fixtures_keep_their_ids_or_get_some_and_the_tag_goes_on_above_them() -> None:
    rows = [{"model": "shop.order", "pk": 10_000_000, "fields": {"customer": "f", "placed_at": "2026-01-01T00:00:00Z"}}]
    del (keyless := {**rows[0]})["pk"]
    (folder / "orders.json").write_text(json.dumps([*rows, keyless]))
    call_command("loaddata", str(folder / "orders.json"), verbosity=0)
    same(list(Order.objects.values_list("pk", flat=True)), [10_000_000, 10_000_001])
    same(Order.objects.create().pk, 10_000_002)
    same(allocator().tags.get("shop_order").max_value, 10_000_010)


@chapter
def an_object_is_saved_by_the_statements_of_a_key_that_is_given_by_hand() -> None:
    first = Order(customer="a")
    same(first.pk, None)
    same([statements(first.save), statements(first.save)], [["INSERT"], ["UPDATE"]])
    same(statements(Order(pk=first.pk, customer="reverted", placed_at=first.placed_at).save), ["UPDATE"])
    first.refresh_from_db()
    same(first.customer, "reverted")
    given = Order(pk=77)
    given.save()
    same(given.pk, 77)


@chapter
def so_are_objects_in_bulk() -> None:
    orders = [Order(customer="b") for _ in range(600)]
    Order.objects.bulk_create(orders[:1])
    seen = statements(lambda: Order.objects.bulk_create(orders[1:], batch_size=100))
    ids = [order.pk for order in orders]
    same(distinct(ids), Order.objects.filter(pk__in=ids).count())
    same(ids, sorted(ids))
    same(seen.count("INSERT"), 6)
    assert len(seen) <= 8, seen  # BEGIN and COMMIT, where they are statements
    both = give_ids([Order(), Order()])
    items = [OrderItem(order=one, product="tea") for one in both]
    with transaction.atomic():
        Order.objects.bulk_create(both)
        OrderItem.objects.bulk_create(items)
    same([item.order_id for item in items], [one.pk for one in both])


@chapter
def an_upsert_leaves_no_id_that_no_row_has() -> None:
    """Of objects without a key, with one, and with one that the caller has seen. The row's key or none: with a key of
    the object's own the row that stays may have another."""
    create(Bin)
    first = Bin.objects.create(code="a")
    by_code = {"update_conflicts": True, "update_fields": ["code"]}
    if connection.features.supports_update_conflicts_with_target:
        by_code["unique_fields"] = ["code"]
    updated = Bin.objects.bulk_create([Bin(code="a"), Bin(code="b")], **by_code)
    ignored = Bin.objects.bulk_create([Bin(code="a"), Bin(code="c")], ignore_conflicts=True)
    same([one.pk for one in (*updated, *ignored)], [None] * 4)
    (kept,) = Bin.objects.bulk_create([first], **by_code)
    assert kept.pk == first.pk == Bin.objects.get(code="a").pk
    for object_with_key in (Bin(pk=500, code="d"), give_ids([Bin(code="e")])[0]):
        key = object_with_key.pk
        Bin.objects.bulk_create([object_with_key], **by_code)
        assert object_with_key.pk == key == Bin.objects.get(code=object_with_key.code).pk
    if KIND != "mysql":  # the key alone decides
        (new,) = Bin.objects.bulk_create([Bin(code="f")], **(by_code | {"unique_fields": ["pk"]}))
        same(new.pk, Bin.objects.get(code="f").pk)


@chapter
def an_object_whose_save_has_failed_gets_an_id_in_the_next_bulk() -> None:
    """Whether a receiver or the database refused it: nothing is left that the next call of the object sees."""

    def refuse(**signal: object) -> None:
        raise ValueError

    for one, error in ((Bin(pk=5000, code="a"), IntegrityError), (Bin(), ValueError)):
        if error is ValueError:
            pre_save.connect(refuse, sender=Bin)
        with suppress(error), transaction.atomic():
            one.save()
            raise AssertionError("it was saved")
        one.pk, one.code = None, error.__name__[:10]
        Bin.objects.bulk_create([one])
        same(Bin.objects.get(pk=one.pk).code, one.code)
    pre_save.disconnect(refuse, sender=Bin)
    for forced in ({"force_update": True}, {"update_fields": ["code"]}):
        with suppress(ValueError):
            Bin().save(**forced)
            raise AssertionError("it was saved")


@chapter
def a_composite_key_has_an_id_of_ours() -> None:
    if not Parcel:
        return
    create(Parcel)
    Parcel.objects.create(tenant=1)
    parcel = Parcel(tenant=1)
    saved = statements(parcel.save)
    parcel.code = "changed"
    same([saved, statements(parcel.save)], [["INSERT"], ["UPDATE"]])
    Parcel.objects.bulk_create([Parcel(tenant=2), *give_ids([Parcel(tenant=2)])])
    same(Parcel.check(), [])
    same(Parcel._meta.get_field("id").deconstruct()[3], {"primary_key": False})
    same(sorted(one.pk for one in Parcel.objects.all()), [(1, 1), (1, 2), (2, 3), (2, 4)])


@chapter
def models_inherit_their_key_and_share_a_tag_and_a_table_goes_on_above_its_rows() -> None:
    create(Place, Restaurant, Shelf, Old, Left, Right, Third)
    Old.objects.bulk_create(Old() for _ in range(30))
    same(len(counters("old")), int(KIND == "postgresql"))
    with connection.schema_editor() as editor:
        editor.alter_field(Old, Old._meta.pk, changed(Old))
    same(counters("old"), [])
    same([Taken.objects.create().pk, Taken.objects.count()], [31, 31])
    place, restaurant = Place.objects.create(), Restaurant.objects.create(name="r")
    (known,) = give_ids([Restaurant(name="g")])
    given = known.pk
    known.save()
    same([place.pk, restaurant.pk, restaurant.place_ptr_id, given, Place.objects.get(name="g").pk], [1, 2, 2, 3, 3])
    restaurant.orders.add(Order.objects.create(), Order.objects.create())
    through = Restaurant.orders.through
    same(type(through._meta.pk).__name__, "BigAutoField")
    same(sorted(through.objects.values_list("pk", flat=True)), [1, 2])
    same([Shelf.objects.create().pk for _ in range(2)], [1, 2])
    same([model._meta.pk.tag for model in (Place, Shelf)], ["place", "shelf"])
    same([Left.objects.create().pk, Right.objects.create(pk=50).pk, Right.objects.create().pk], [1, 50, 51])
    same([Third.objects.create(pk=52).pk, Third.objects.create().pk], [52, 53])  # 52 is in memory


@chapter
def a_path_reads_public_ids() -> None:
    public = PublicIds(bytes(range(32)), prefix="ord_")
    text = public.encode(1_001)

    class BillId:
        regex = "[^/]+"
        to_python = staticmethod(public.decode)
        to_url = staticmethod(public.encode)

    register_converter(BillId, "bill")
    route = path("bills/<bill:number>", print)
    same(BillId().to_url(1_001), text)
    found = [route.resolve(f"bills/{each}") for each in (text, "1", "ord_I9UOBqekNF7q8z1n")]
    same([found[0].kwargs, *found[1:]], [{"number": 1_001}, None, None])


TOO_HIGH = (
    "tag 'older' has the limit 9223372036854775807, but older.id (IntegerField) holds ids only up to 2147483647: "
    "INSERTs above that will fail; lower the limit: manage.py allocator tags set older --limit 2147483647"
)


@chapter
def a_tag_ends_where_its_column_does() -> None:
    create(Narrow, Older)
    tags = allocator().tags
    tags.create("older")
    said: list[str] = []
    logger = logging.getLogger("allocator")
    logger.addHandler(handler := logging.Handler())
    handler.emit = lambda record: said.append(record.getMessage())
    Narrow.objects.create(parent=Narrow.objects.create())
    Older.objects.create()
    logger.removeHandler(handler)
    same(tags.get("place").limit, 2**63 - 1)
    same(tags.get("narrow").limit, 2**63 - 1 if KIND == "sqlite" else 2**31 - 1)
    same(said, [TOO_HIGH] * (KIND != "sqlite"))
    same(len({field.db_type(connection) for field in Narrow._meta.fields}), 1)


def changed(model: type[models.Model]) -> AllocatedBigAutoField:
    field = AllocatedBigAutoField()
    field.set_attributes_from_name("id")
    field.model = model
    return field


if __name__ == "__main__":
    tell_all()
