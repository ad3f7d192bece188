package bigiron;

import java.util.TreeMap;

/** The terminal of a warehouse: it draws transactions, executes them and formats their results. */
final class Terminal {
    /** Of 23 transactions: 10 new orders, 10 payments, and one each of the others. */
    private static final int[] DECK = {10, 10, 1, 1, 1};
    private static final int CARDS = 23;

    private final Company company;
    private final Warehouse warehouse;
    private final Draws draws;
    private final int[] cards = new int[CARDS];
    private int next = CARDS;
    private final StringBuilder screen = new StringBuilder(4096);
    /** Over all results, so that none is left out. */
    private long digest;

    Terminal(Company company, Warehouse warehouse, long seed) {
        this.company = company;
        this.warehouse = warehouse;
        draws = new Draws(seed, 1 + warehouse.id);
        int n = 0;
        for (int kind = 0; kind < DECK.length; kind++) {
            for (int i = 0; i < DECK[kind]; i++) {
                cards[n++] = kind;
            }
        }
    }

    long digest() {
        return digest;
    }

    void transaction() {
        if (next == CARDS) {
            for (int i = CARDS - 1; i > 0; i--) {
                int j = draws.below(i + 1);
                int card = cards[i];
                cards[i] = cards[j];
                cards[j] = card;
            }
            next = 0;
        }
        screen.setLength(0);
        switch (cards[next++]) {
            case 0 -> newOrder();
            case 1 -> payment();
            case 2 -> orderStatus();
            case 3 -> delivery();
            default -> report();
        }
        digest = digest * 31 + screen.toString().hashCode();
    }

    private District district() {
        return warehouse.districts[draws.below(Warehouse.DISTRICTS)];
    }

    private int customerNumber() {
        return draws.skewed(1023, warehouse.customersPerDistrict);
    }

    /** This warehouse, or another one in {@code percent} of the draws. */
    private Warehouse mostlyOwn(int percent) {
        int count = company.warehouses.length;
        boolean other = draws.below(100) < percent;
        int step = draws.from(1, Math.max(1, count - 1));
        return other && count > 1 ? company.warehouses[(warehouse.id + step) % count] : warehouse;
    }

    private void newOrder() {
        District district = district();
        Customer customer = warehouse.customer(district.id, customerNumber());
        Order.Line[] lines = new Order.Line[draws.from(5, 15)];
        long sum = 0;
        TreeMap<Integer, Integer> left = new TreeMap<>();
        for (int i = 0; i < lines.length; i++) {
            Item item = company.items[draws.skewed(8191, company.items.length)];
            Warehouse supplier = mostlyOwn(1);
            int quantity = draws.from(1, 10);
            synchronized (supplier.stock) {
                Stock stock = supplier.stock.get(item.id());
                stock.take(quantity);
                left.put(item.id(), stock.quantity);
            }
            long amount = item.price() * quantity;
            sum += amount;
            lines[i] = new Order.Line(item, supplier.id, quantity, amount);
        }
        long total = sum * (100 - customer.discountPercent) / 100
            * (100 + warehouse.taxPercent + district.taxPercent) / 100;
        Order order = new Order(district.nextOrder++, customer, lines, total);
        district.add(order);
        customer.lastOrder = order.id;
        warehouse.quantityOrdered += order.quantity();
        heading("New order", district);
        screen.append("customer ").append(customer.last).append("  order ").append(order.id).append('\n');
        for (Order.Line line : lines) {
            screen.append(line.supplier() + 1).append("  ").append(line.item().name()).append("  ")
                .append(line.quantity()).append("  ").append(left.get(line.item().id())).append("  ");
            money(line.amount());
        }
        screen.append("total ");
        money(total);
    }

    private void payment() {
        District district = district();
        Warehouse of = mostlyOwn(15);
        int in = of == warehouse ? district.id : draws.below(Warehouse.DISTRICTS);
        Customer customer = of.customer(in, customerNumber());
        long amount = draws.from(100, 500_000);
        synchronized (of.customers) {
            customer.balance -= amount;
            customer.paid += amount;
            customer.payments++;
            String data = warehouse.id + " " + district.id + " " + amount + " " + customer.data;
            customer.data = data.substring(0, Math.min(data.length(), 120));
        }
        district.paid += amount;
        warehouse.remember(new Warehouse.Payment(district.id, of.id, customer.id, amount));
        heading("Payment", district);
        screen.append(customer.first).append(' ').append(customer.last).append('\n').append(customer.street)
            .append('\n').append(customer.city).append("\npaid ");
        money(amount);
        screen.append("balance ");
        money(customer.balance);
        screen.append(customer.data).append('\n');
    }

    private void orderStatus() {
        District district = district();
        Customer customer = warehouse.customer(district.id, customerNumber());
        Order order = district.orders.get(customer.lastOrder);
        screen.append("<status warehouse=\"").append(warehouse.id + 1).append("\" district=\"")
            .append(district.id + 1).append("\"><customer><last>").append(customer.last).append("</last><first>")
            .append(customer.first).append("</first></customer>");
        if (order != null) {
            screen.append("<order number=\"").append(order.id).append("\" carrier=\"").append(order.carrier)
                .append("\">");
            for (Order.Line line : order.lines) {
                screen.append("<line item=\"").append(line.item().id()).append("\" quantity=\"")
                    .append(line.quantity()).append("\">");
                money(line.amount());
                screen.append("</line>");
            }
            screen.append("</order>");
        }
        screen.append("</status>");
    }

    private void delivery() {
        int carrier = draws.from(1, 10);
        heading("Delivery", warehouse.districts[0]);
        for (District district : warehouse.districts) {
            // On average one has come since the last delivery; two catch up.
            for (int i = 0; i < 2; i++) {
                Order order = district.undelivered.poll();
                if (order == null) {
                    break;
                }
                order.carrier = carrier;
                synchronized (warehouse.customers) {
                    order.customer.balance += order.total;
                    order.customer.deliveries++;
                }
                district.delivered++;
                district.deliveredTotal += order.total;
                screen.append("district ").append(district.id + 1).append("  order ").append(order.id).append("  ");
                money(order.total);
            }
            district.trim();
        }
    }

    /** The stock of what was ordered last, and the customers who ordered it. */
    private void report() {
        District district = district();
        int threshold = draws.from(10, 20);
        TreeMap<Integer, Integer> low = new TreeMap<>();
        TreeMap<String, Long> customers = new TreeMap<>();
        for (Order order : district.orders.tailMap(district.nextOrder - 20).values()) {
            customers.merge(order.customer.last, order.total, Long::sum);
            for (Order.Line line : order.lines) {
                synchronized (warehouse.stock) {
                    int quantity = warehouse.stock.get(line.item().id()).quantity;
                    if (quantity < threshold) {
                        low.put(line.item().id(), quantity);
                    }
                }
            }
        }
        screen.append("<report district=\"").append(district.id + 1).append("\">");
        low.forEach((item, quantity) -> screen.append("<item number=\"").append(item).append("\">").append(quantity)
            .append("</item>"));
        customers.forEach((name, total) -> {
            screen.append("<customer name=\"").append(name).append("\">");
            money(total);
            screen.append("</customer>");
        });
        screen.append("</report>");
    }

    private void heading(String title, District district) {
        screen.append(title).append("  ").append(warehouse.name).append("  district ").append(district.id + 1)
            .append('\n');
    }

    /** Cents as money, with a line's end. */
    private void money(long cents) {
        if (cents < 0) {
            screen.append('-');
        }
        long absolute = Math.abs(cents);
        screen.append(absolute / 100).append('.').append((char) ('0' + absolute / 10 % 10))
            .append((char) ('0' + absolute % 10)).append('\n');
    }
}
