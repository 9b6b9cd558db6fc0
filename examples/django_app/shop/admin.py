from django.contrib import admin

from shop.models import Order, OrderItem


class ItemInline(admin.TabularInline):
    model = OrderItem
    extra = 1


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):
    list_display = ("id", "customer", "placed_at")
    inlines = (ItemInline,)
