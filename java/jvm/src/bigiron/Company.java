package bigiron;

/** All warehouses of a point, and the check of their data. */
final class Company {
    final Item[] items;
    final Warehouse[] warehouses;

    Company(int count, int itemCount, int customersPerDistrict, long seed) {
        Draws draws = new Draws(seed, 0);
        items = new Item[itemCount];
        for (int i = 0; i < itemCount; i++) {
            items[i] = Item.drawn(i, draws);
        }
        warehouses = new Warehouse[count];
        for (int w = 0; w < count; w++) {
            warehouses[w] = new Warehouse(w, items, customersPerDistrict, new Draws(seed, -1 - w));
        }
    }

    /** Compares the data with what the terminals counted. No terminal works meanwhile. */
    void check() {
        long ordered = 0;
        long taken = 0;
        long balance = 0;
        long customersPaid = 0;
        long paid = 0;
        long payments = 0;
        long customerPayments = 0;
        long delivered = 0;
        long deliveries = 0;
        long customerDeliveries = 0;
        for (Warehouse warehouse : warehouses) {
            String where = "warehouse " + (warehouse.id + 1);
            long districtsPaid = 0;
            long quantity = 0;
            for (District district : warehouse.districts) {
                String in = where + ", district " + (district.id + 1);
                districtsPaid += district.paid;
                deliveries += district.delivered;
                delivered += district.deliveredTotal;
                long made = district.nextOrder - 1;
                equal(in + ": orders", made, district.orders.size() + district.removedOrders);
                equal(in + ": orders not delivered", made - district.delivered, district.undelivered.size());
                quantity += district.removedQuantity;
                int before = 0;
                for (var entry : district.orders.entrySet()) {
                    Order order = entry.getValue();
                    equal(in + ": number of an order", entry.getKey(), order.id);
                    if (before > 0) {
                        equal(in + ": number after order " + before, before + 1, order.id);
                    }
                    before = order.id;
                    quantity += order.quantity();
                }
            }
            equal(where + ": payments of its districts", warehouse.paid, districtsPaid);
            equal(where + ": quantity in its orders", warehouse.quantityOrdered, quantity);
            ordered += quantity;
            paid += warehouse.paid;
            payments += warehouse.payments;
            for (Stock stock : warehouse.stock.values()) {
                taken += stock.ordered;
                if (stock.quantity < 0) {
                    throw new Wrong(where + ": stock of item " + stock.item.id() + " is " + stock.quantity);
                }
            }
            for (Customer customer : warehouse.customers.values()) {
                balance += customer.balance;
                customersPaid += customer.paid;
                customerPayments += customer.payments;
                customerDeliveries += customer.deliveries;
            }
        }
        equal("quantity taken from stock", ordered, taken);
        equal("payments of customers", payments, customerPayments);
        equal("money paid by customers", paid, customersPaid);
        equal("deliveries to customers", deliveries, customerDeliveries);
        equal("balance of customers", delivered - paid, balance);
    }

    private static void equal(String what, long right, long is) {
        if (right != is) {
            throw new Wrong(what + ": " + is + " instead of " + right);
        }
    }
}
