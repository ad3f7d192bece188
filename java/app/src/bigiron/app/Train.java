package bigiron.app;

import jakarta.servlet.ServletException;
import jakarta.servlet.http.HttpServlet;
import java.io.File;
import java.io.IOException;
import java.util.Collections;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;

/** Loads every class of the class path, so that an archive of classes has those that requests will need. Serves nothing. */
public final class Train extends HttpServlet {
    private static final long serialVersionUID = 1;
    private static final String SUFFIX = ".class";

    @Override
    public void init() throws ServletException {
        for (String path : System.getProperty("java.class.path").split(File.pathSeparator)) {
            try (JarFile jar = new JarFile(path)) {
                for (JarEntry entry : Collections.list(jar.entries())) {
                    load(entry.getName());
                }
            } catch (IOException error) {
                throw new ServletException("Cannot read " + path, error);
            }
        }
    }

    private static void load(String file) {
        if (!file.endsWith(SUFFIX) || file.startsWith("META-INF/") || file.endsWith("-info.class")) {
            return;
        }
        String name = file.substring(0, file.length() - SUFFIX.length()).replace('/', '.');
        try {
            Class.forName(name, false, Train.class.getClassLoader());
        } catch (ClassNotFoundException | LinkageError error) {
            // It needs what is not here: nobody uses it.
        }
    }
}
