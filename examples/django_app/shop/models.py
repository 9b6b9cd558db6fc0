from django.db import models

from allocator.integrations.django import AllocatedBigAutoField


class Order(models.Model):
    id = AllocatedBigAutoField()  # default tag: the name of the table, shop_order
    customer = models.CharField(max_length=100)
    placed_at = models.DateTimeField(auto_now_add=True)

    def __str__(self):
        return f"order {self.id} of {self.customer}"


class OrderItem(models.Model):
    id = AllocatedBigAutoField(tag="item")  # or a tag of your choice
    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="items")
    product = models.CharField(max_length=100)
    quantity = models.PositiveIntegerField(default=1)
