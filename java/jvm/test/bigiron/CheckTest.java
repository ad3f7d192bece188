package bigiron;

/** The self-check accepts what terminals did, and refuses each change of the data. `scripts/build-java test` runs it. */
final class CheckTest {
    private CheckTest() {}

    private interface Change {
        void make(Company company);
    }

    private static Company worked() {
        Company company = new Company(2, 500, 30, 7);
        Terminal[] terminals = {
            new Terminal(company, company.warehouses[0], 7), new Terminal(company, company.warehouses[1], 7)
        };
        for (int n = 0; n < 20_000; n++) {
            terminals[n % 2].transaction();
        }
        return company;
    }

    private static void refused(String what, Change change) {
        Company company = worked();
        change.make(company);
        try {
            company.check();
        } catch (Wrong wrong) {
            if (wrong.getMessage().contains(what)) {
                return;
            }
            throw new AssertionError("`" + wrong.getMessage() + "` does not name " + what);
        }
        throw new AssertionError("not refused: " + what);
    }

    public static void main(String[] args) {
        worked().check();
        refused("orders", c -> c.warehouses[0].districts[3].orders.pollLastEntry());
        refused("orders not delivered", c -> c.warehouses[0].districts[3].delivered++);
        refused("number of an order", c -> {
            var orders = c.warehouses[1].districts[0].orders;
            orders.put(orders.lastKey() + 1, orders.pollFirstEntry().getValue());
        });
        refused("payments of its districts", c -> c.warehouses[0].districts[9].paid++);
        refused("quantity in its orders", c -> c.warehouses[1].districts[2].removedQuantity++);
        refused("quantity taken from stock", c -> c.warehouses[0].stock.get(17).ordered--);
        refused("stock of item 17", c -> c.warehouses[0].stock.get(17).quantity = -1);
        refused("payments of customers", c -> c.warehouses[0].customers.firstEntry().getValue().payments++);
        refused("money paid by customers", c -> c.warehouses[0].customers.firstEntry().getValue().paid++);
        refused("deliveries to customers", c -> c.warehouses[0].customers.firstEntry().getValue().deliveries++);
        refused("balance of customers", c -> c.warehouses[0].customers.firstEntry().getValue().balance++);
        System.out.println("The self-check refuses every change");
    }
}
