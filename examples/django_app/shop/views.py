import json
import os

from django.db import transaction
from django.http import JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from allocator.integrations.django import give_ids
from shop.models import Order, OrderItem


@csrf_exempt
@require_POST
def place_order(request):
    """Create one order with its items: {"customer": "Ada", "items": ["tea", "milk"]}."""
    asked = json.loads(request.body)
    with transaction.atomic():
        order = Order.objects.create(customer=asked["customer"])
        items = OrderItem.objects.bulk_create(OrderItem(order=order, product=name) for name in asked["items"])
    return answer([order], items)


@csrf_exempt
@require_POST
def place_many(request):
    """Create `count` orders with an item each in two statements, since the ids are known before the INSERT."""
    orders = give_ids(Order(customer=f"customer {number}") for number in range(int(request.GET["count"])))
    items = [OrderItem(order=order, product="tea") for order in orders]
    with transaction.atomic():
        Order.objects.bulk_create(orders)
        OrderItem.objects.bulk_create(items)
    return answer(orders, items)


async def place_later(request):
    """The same with await: Django runs the calls and the claim on a thread. Django 4.2 decorates no such view."""
    order = Order(customer="async")
    await order.asave()
    items = await OrderItem.objects.abulk_create([OrderItem(order=order, product="tea")])
    return answer([order], items)


def show_order(request, order_id):
    order = get_object_or_404(Order, pk=order_id)
    return JsonResponse({"customer": order.customer, "items": [item.product for item in order.items.all()]})


def answer(orders, items):
    ids = {"orders": [one.id for one in orders], "items": [one.id for one in items]}
    return JsonResponse(ids | {"process": os.getpid()}, status=201)
