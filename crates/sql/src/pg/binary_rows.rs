//! Rows in the binary format of PostgreSQL's `COPY` (its manual, "COPY", "Binary Format").
//!
//! Invariant: rows are passed on in pieces of [`PIECE`] bytes plus at most one row, for tables of any size.

/// This file, for the keys of images that depend on what it encodes.
pub const SOURCE: &str = include_str!("binary_rows.rs");
/// Bytes collected before they are passed on.
pub const PIECE: usize = 256 << 10;
/// Room for the row that completes a piece; the longest ones of the workloads have less than 800 bytes.
const ROW: usize = 1 << 10;

/// Encodes rows of one table. `hand` receives pieces of the copy, cut between rows, and their number of rows.
pub struct BinaryRows<H> {
    hand: H,
    columns: i16,
    out: Vec<u8>,
    rows: u64,
    pending: u64,
}

impl<E, H: FnMut(&[u8], u64) -> Result<(), E>> BinaryRows<H> {
    pub fn new(columns: usize, hand: H) -> Self {
        let mut out = Vec::with_capacity(PIECE + ROW);
        out.extend_from_slice(b"PGCOPY\n\xff\r\n\0");
        // No flags, no extension.
        out.extend_from_slice(&[0; 8]);
        Self { hand, columns: columns as i16, out, rows: 0, pending: 0 }
    }

    /// Begins a row. Its fields follow, as many as there are columns.
    pub fn begin_row(&mut self) {
        self.out.extend_from_slice(&self.columns.to_be_bytes());
    }

    /// A field of four bytes.
    pub fn four(&mut self, value: [u8; 4]) {
        let mut field = [0, 0, 0, 4, 0, 0, 0, 0];
        field[4..].copy_from_slice(&value);
        self.out.extend_from_slice(&field);
    }

    /// A field of eight bytes.
    pub fn eight(&mut self, value: [u8; 8]) {
        let mut field = [0; 12];
        field[3] = 8;
        field[4..].copy_from_slice(&value);
        self.out.extend_from_slice(&field);
    }

    pub fn null(&mut self) {
        self.out.extend_from_slice(&(-1_i32).to_be_bytes());
    }

    /// A field that `fill` appends to the copy.
    pub fn field(&mut self, fill: impl FnOnce(&mut Vec<u8>)) {
        let start = self.out.len();
        self.out.extend_from_slice(&[0; 4]);
        fill(&mut self.out);
        let length = (self.out.len() - start - 4) as i32;
        self.out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    }

    /// Ends a row.
    ///
    /// # Errors
    /// As `hand`.
    pub fn end_row(&mut self) -> Result<(), E> {
        self.rows += 1;
        self.pending += 1;
        if self.out.len() >= PIECE { self.hand_over() } else { Ok(()) }
    }

    /// Passes on the rest; returns the number of rows in the whole copy.
    ///
    /// # Errors
    /// As `hand`.
    pub fn finish(mut self) -> Result<u64, E> {
        self.out.extend_from_slice(&(-1_i16).to_be_bytes());
        self.hand_over()?;
        Ok(self.rows)
    }

    fn hand_over(&mut self) -> Result<(), E> {
        (self.hand)(&self.out, std::mem::take(&mut self.pending))?;
        self.out.clear();
        Ok(())
    }
}
