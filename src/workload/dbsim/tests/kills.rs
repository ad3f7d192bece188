//! Runs that are killed at random points, on an honest stack and on one that lies.
