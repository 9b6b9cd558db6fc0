"""Ids in tests start above a million, as the settings say."""

from django.test import TestCase

from allocator.integrations.django import use
from allocator.testing import MemoryAllocator
from shop.models import Order, OrderItem


class OrderTests(TestCase):
    def test_an_order_and_its_items_have_ids(self):
        order = Order.objects.create(customer="Ada")
        items = OrderItem.objects.bulk_create(OrderItem(order=order, product="tea") for _ in range(3))

        self.assertEqual(3, len({item.id for item in items}))
        self.assertGreater(order.id, 1_000_000)

    def test_one_statement_saves_an_order(self):
        with self.assertNumQueries(1):
            Order.objects.create(customer="Ada")

    def test_ids_that_are_known_beforehand(self):
        with MemoryAllocator() as ids, use(ids):
            self.assertEqual(1, Order.objects.create(customer="Ada").id)
