"""What a Django application does with its rows, in a process of its own: `python -m` this module, with a folder.

It runs on the example's project, with more models, and prints what it found as JSON.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from contextlib import suppress
from pathlib import Path

import django
from django.conf import settings

django.setup()

from django.contrib.auth.models import User  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import IntegrityError, connection, models, transaction  # noqa: E402
from django.db.models.signals import pre_save  # noqa: E402
from django.test import Client  # noqa: E402
from django.test.utils import CaptureQueriesContext  # noqa: E402
from shop.models import Order, OrderItem  # noqa: E402

from allocator.integrations.django import AllocatedBigAutoField, allocator, give_ids  # noqa: E402


class Stamped(models.Model):
    id = AllocatedBigAutoField()

    class Meta:
        abstract = True
        app_label = "story"


class Place(Stamped):
    name = models.CharField(max_length=50)

    class Meta(Stamped.Meta):
        db_table = "place"


class Restaurant(Place):
    orders = models.ManyToManyField(Order)

    class Meta:
        app_label = "story"


class Shelf(models.Model):
    """Of which the key is that of `DEFAULT_AUTO_FIELD`."""

    class Meta:
        app_label = "story"
        db_table = "shelf"


class Left(models.Model):
    """Of which the ids are unique together with those of another model."""

    id = AllocatedBigAutoField(tag="both")

    class Meta:
        app_label = "story"
        db_table = "left_of_both"


class Right(models.Model):
    id = AllocatedBigAutoField(tag="both")

    class Meta:
        app_label = "story"
        db_table = "right_of_both"


class Old(models.Model):
    """Numbered by the database until now."""

    id = models.BigAutoField(primary_key=True)

    class Meta:
        app_label = "story"
        db_table = "old"


class Taken(models.Model):
    """The same table, afterwards."""

    id = AllocatedBigAutoField()

    class Meta:
        app_label = "story"
        db_table = "old"
        managed = False


class Key32(AllocatedBigAutoField):
    def get_internal_type(self) -> str:
        return "IntegerField"


class Narrow(models.Model):
    """Of which the key, and what refers to it, has 32 bits."""

    id = Key32()
    parent = models.ForeignKey("self", models.CASCADE, null=True)

    class Meta:
        app_label = "story"
        db_table = "narrow"


class Older(models.Model):
    """Of which the tag was made before."""

    id = Key32()

    class Meta:
        app_label = "story"
        db_table = "older"


class Bin(models.Model):
    """Of which another column is unique too."""

    id = AllocatedBigAutoField()
    code = models.CharField(max_length=10, unique=True)

    class Meta:
        app_label = "story"
        db_table = "bin"


class Parcel(models.Model):
    """Of which the key is an id of each tenant."""

    pk = models.CompositePrimaryKey("tenant", "id")
    tenant = models.BigIntegerField()
    id = AllocatedBigAutoField(primary_key=False)
    code = models.CharField(max_length=10)

    class Meta:
        app_label = "story"
        db_table = "parcel"


def statements(act) -> list[str]:
    with CaptureQueriesContext(connection) as seen:
        act()
    return [query["sql"].split()[0].strip("(") for query in seen.captured_queries]


def migrations() -> dict:
    call_command("migrate", verbosity=0)
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)  # ends the process where something is found
    with connection.cursor() as cursor:
        described = connection.introspection.get_table_description(cursor, "shop_orderitem")
        kinds = {one.name: connection.introspection.get_field_type(one.type_code, one) for one in described}
    key = Order._meta.pk
    return {
        "written": sorted(key.deconstruct()[3]),
        "column": kinds["order_id"],
        "types": [key.db_type(connection), key.rel_db_type(connection)],
        "counters": counters("shop_order"),
    }


def counters(table: str) -> list[str]:
    """What PostgreSQL has to number a table."""
    with connection.cursor() as cursor:
        return [one["name"] for one in connection.introspection.get_sequences(cursor, table) if one.get("name")]


def fixtures(folder: Path) -> dict:
    rows = [{"model": "shop.order", "pk": 10_000_000, "fields": {"customer": "f", "placed_at": "2026-01-01T00:00:00Z"}}]
    del (keyless := {**rows[0]})["pk"]
    (folder / "orders.json").write_text(json.dumps([*rows, keyless]))
    call_command("loaddata", str(folder / "orders.json"), verbosity=0)
    loaded = list(Order.objects.values_list("pk", flat=True))
    return {
        "loaded": loaded,
        "next": Order.objects.create().pk,
        "claimed": allocator().tags.get("shop_order").max_value,
    }


def saving() -> dict:
    first = Order(customer="a")
    before = first.pk
    saved = statements(first.save)
    again = statements(first.save)
    revert = statements(Order(pk=first.pk, customer="reverted", placed_at=first.placed_at).save)
    first.refresh_from_db()
    given = Order(pk=77)
    given.save()
    return {
        "before": before,
        "saved": saved,
        "again": again,
        "revert": [revert, first.customer],
        "given": given.pk,
    }


def bulk() -> dict:
    orders = [Order(customer="b") for _ in range(600)]
    Order.objects.bulk_create(orders[:1])
    seen = statements(lambda: Order.objects.bulk_create(orders[1:], batch_size=100))
    both = give_ids([Order(), Order()])
    items = [OrderItem(order=one, product="tea") for one in both]
    with transaction.atomic():
        Order.objects.bulk_create(both)
        OrderItem.objects.bulk_create(items)
    return {
        "ids": [order.pk for order in orders],
        "statements": seen,
        "stored": Order.objects.filter(pk__in=[one.pk for one in orders]).count(),
        "of_parents": [item.order_id for item in items] == [one.pk for one in both],
    }


def upserts() -> dict:
    """Of objects without a key, with one, and with one that the caller has seen."""
    with connection.schema_editor() as editor:
        editor.create_model(Bin)
    first = Bin.objects.create(code="a")
    by_code = {"update_conflicts": True, "update_fields": ["code"]}
    if connection.features.supports_update_conflicts_with_target:
        by_code["unique_fields"] = ["code"]
    updated = Bin.objects.bulk_create([Bin(code="a"), Bin(code="b")], **by_code)
    ignored = Bin.objects.bulk_create([Bin(code="a"), Bin(code="c")], ignore_conflicts=True)
    (same,) = Bin.objects.bulk_create([first], **by_code)
    kept = [same.pk == first.pk == Bin.objects.get(code="a").pk]
    for object_with_key in (Bin(pk=500, code="d"), give_ids([Bin(code="e")])[0]):
        key = object_with_key.pk
        Bin.objects.bulk_create([object_with_key], **by_code)
        kept.append(object_with_key.pk == key == Bin.objects.get(code=object_with_key.code).pk)
    if "unique_fields" in by_code:  # the key alone decides
        (new,) = Bin.objects.bulk_create([Bin(code="f")], **(by_code | {"unique_fields": ["pk"]}))
        kept.append(new.pk == Bin.objects.get(code="f").pk)
    return {"keys": [one.pk for one in (*updated, *ignored)], "kept": kept}


def failing() -> dict:
    """A save that a receiver or the database refuses leaves nothing behind that the next call of the object sees."""
    taken = Bin.objects.create(code="taken")

    def refuse(**signal: object) -> None:
        raise ValueError

    def refused(one: Bin, error: type[Exception]) -> str:
        try:
            with transaction.atomic():
                one.save()
        except error:
            one.pk, one.code = None, f"of {error.__name__}"[:10]
            Bin.objects.bulk_create([one])
        return Bin.objects.get(pk=one.pk).code

    found = [refused(Bin(pk=5000, code=taken.code), IntegrityError)]
    pre_save.connect(refuse, sender=Bin)
    found.append(refused(Bin(), ValueError))
    pre_save.disconnect(refuse, sender=Bin)
    forced = Bin(code="forced")
    with suppress(ValueError):  # as for any model: there is no row to update
        forced.save(force_update=True)
    return {"stored": found, "forced": forced.pk}


def composite() -> dict:
    with connection.schema_editor() as editor:
        editor.create_model(Parcel)
    Parcel.objects.create(tenant=1)
    parcel = Parcel(tenant=1)
    saved = statements(parcel.save)
    parcel.code = "changed"
    again = statements(parcel.save)
    Parcel.objects.bulk_create([Parcel(tenant=2), *give_ids([Parcel(tenant=2)])])
    return {
        "checks": [str(one) for one in Parcel.check()],
        "written": Parcel._meta.get_field("id").deconstruct()[3],
        "statements": [saved, again],
        "keys": sorted(one.pk for one in Parcel.objects.all()),
    }


def queries() -> dict:
    one, made = Order.objects.get_or_create(customer="g")
    same, again = Order.objects.get_or_create(customer="g")
    other, _ = Order.objects.update_or_create(customer="u", defaults={})
    try:
        with transaction.atomic():
            burnt = Order.objects.create().pk
            raise RuntimeError
    except RuntimeError:
        after = Order.objects.create().pk
    return {"made": [made, again], "same": one.pk == same.pk, "other": other.pk != one.pk, "burnt": [burnt, after]}


def inheritance() -> dict:
    with connection.schema_editor() as editor:
        for model in (Place, Restaurant, Shelf, Old, Left, Right):
            editor.create_model(model)
    Old.objects.bulk_create(Old() for _ in range(30))
    before = counters("old")
    with connection.schema_editor() as editor:
        editor.alter_field(Old, Old._meta.pk, changed(Old))
    place, restaurant = Place.objects.create(), Restaurant.objects.create(name="r")
    (known,) = give_ids([Restaurant(name="g")])
    given = known.pk
    known.save()
    restaurant.orders.add(Order.objects.create(), Order.objects.create())
    through = Restaurant.orders.through
    return {
        "tags": [model._meta.pk.tag for model in (Place, Shelf)],
        "joining": type(through._meta.pk).__name__,
        "ids": [place.pk, restaurant.pk, restaurant.place_ptr_id, given, Place.objects.get(name="g").pk],
        "through": sorted(through.objects.values_list("pk", flat=True)),
        "shelf": [Shelf.objects.create().pk for _ in range(2)],
        "both": [Left.objects.create().pk, Right.objects.create(pk=50).pk, Right.objects.create().pk],
        "counters": [len(before), len(counters("old"))],
        "taken": [Taken.objects.create().pk, Taken.objects.count()],
    }


def columns() -> dict:
    with connection.schema_editor() as editor:
        for model in (Narrow, Older):
            editor.create_model(model)
    tags = allocator().tags
    tags.create("older")
    said: list[str] = []
    logger = logging.getLogger("allocator")
    logger.addHandler(handler := logging.Handler())
    handler.emit = lambda record: said.append(record.getMessage())
    Narrow.objects.create(parent=Narrow.objects.create())
    Older.objects.create()
    logger.removeHandler(handler)
    place = {"place": tags.get("place").limit, "narrow": tags.get("narrow").limit}
    return {"limits": place, "said": said, "types": [field.db_type(connection) for field in Narrow._meta.fields]}


def changed(model: type[models.Model]) -> AllocatedBigAutoField:
    field = AllocatedBigAutoField()
    field.set_attributes_from_name("id")
    field.model = model
    return field


def admin() -> dict:
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    page = client.get("/admin/shop/order/add/")
    item = {"product": "tea", "quantity": "2", "id": "", "order": ""}
    form = {"customer": "by the admin", "items-TOTAL_FORMS": "1", "items-INITIAL_FORMS": "0"}
    posted = client.post("/admin/shop/order/add/", form | {f"items-0-{name}": value for name, value in item.items()})
    order = Order.objects.get(customer="by the admin")
    change = {**form, "items-INITIAL_FORMS": "1", "customer": "changed", "items-0-id": str(order.items.get().pk)}
    change |= {"items-0-order": str(order.pk), "items-0-product": "milk", "items-0-quantity": "1"}
    client.post(f"/admin/shop/order/{order.pk}/change/", change)
    order.refresh_from_db()
    return {
        "status": [page.status_code, posted.status_code],
        "editable": 'name="id"' in page.content.decode(),
        "id": order.pk,
        "changed": [order.customer, order.items.get().product],
    }


def awaited() -> dict:
    async def draw() -> list[int]:
        order = Order(customer="async")
        await order.asave()
        several = await Order.objects.abulk_create([Order() for _ in range(5)])
        found = await Order.objects.acreate()
        return [order.pk, *(one.pk for one in several), found.pk]

    return {"ids": asyncio.run(draw())}


def main(folder: Path) -> None:
    settings.ALLOWED_HOSTS = ["*"]
    found = {"migrations": migrations(), "fixtures": fixtures(folder)}
    for chapter in (saving, bulk, upserts, failing, composite, queries, inheritance, columns, admin, awaited):
        found[chapter.__name__] = chapter()
    found["all"] = list(Order.objects.values_list("pk", flat=True))
    found["from"] = repr(allocator())
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
