package bigiron.app;

import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.catalina.Container;
import org.apache.catalina.LifecycleState;
import org.apache.catalina.Service;
import org.apache.catalina.startup.Catalina;

/** Starts Tomcat as {@code conf/server.xml} of its folder says, writes the number of its process into {@code run/pid}, and goes on until a signal. */
public final class Start {
    private Start() {}

    public static void main(String[] args) throws Exception {
        // Otherwise Tomcat goes on without a connector that it cannot have.
        System.setProperty("org.apache.catalina.startup.EXIT_ON_INIT_FAILURE", "true");
        Catalina tomcat = new Catalina();
        tomcat.setParentClassLoader(Start.class.getClassLoader());
        tomcat.load();
        tomcat.start();
        if (tomcat.getServer() == null || tomcat.getServer().getState() != LifecycleState.STARTED) {
            fail("Tomcat has not started");
        }
        for (Service service : tomcat.getServer().findServices()) {
            check(service.getContainer());
        }
        String home = System.getProperty("catalina.base");
        Files.writeString(Path.of(home, "run", "pid"), ProcessHandle.current().pid() + "\n");
        tomcat.getServer().await();
    }

    private static void check(Container container) {
        if (!container.getState().isAvailable()) {
            fail("Tomcat has not started `" + container.getName() + "`");
        }
        for (Container child : container.findChildren()) {
            check(child);
        }
    }

    private static void fail(String why) {
        System.err.println("SEVERE: " + why);
        System.exit(1);
    }
}
