//! Arithmetic that is done one operation at a time: values kept in a register and opaque to the compiler.
//!
//! Invariant: nothing here reads or writes memory.

use std::arch::asm;

/// A number that fits a register.
pub trait Register: Copy {
    /// The same number in a register, opaque to the compiler: earlier computations are carried out, and later ones cannot be folded into it.
    fn opaque(self) -> Self;
}

macro_rules! register {
    ($($number:ty, $class:ident, $operand:literal);+) => {$(
        impl Register for $number {
            #[inline(always)]
            fn opaque(mut self) -> Self {
                // SAFETY: an empty piece of assembly that leaves the register, the flags, the stack and memory as they are.
                unsafe { asm!($operand, inout($class) self, options(nomem, nostack, preserves_flags)) };
                self
            }
        }
    )+};
}

register!(i16, reg, "/* {0:x} */"; i32, reg, "/* {0:e} */"; i64, reg, "/* {0:r} */"; f32, xmm_reg, "/* {0} */"; f64, xmm_reg, "/* {0} */");

/// An integer with a division that is one instruction, as in C.
pub trait Division: Register {
    const ONE: Self;

    /// `rounds` times twelve divisions, each depending on the one before: of `start` and of two ones, by the ones. Returns the three unchanged, in
    /// that order.
    fn chain(start: Self, rounds: u64) -> [Self; 3];
}

macro_rules! division {
    ($($number:ty, $wide:ty);+) => {$(
        impl Division for $number {
            const ONE: Self = 1;

            #[inline(never)]
            fn chain(start: Self, rounds: u64) -> [Self; 3] {
                let divide = |a: $number, b: $number| -> $number {
                    // SAFETY: every divisor below is one of the two that begin as 1, or a quotient of those: 1.
                    unsafe { std::hint::assert_unchecked(b > 0) };
                    ((<$wide>::from(a)) / (<$wide>::from(b))) as $number
                };
                let (mut a, mut x, mut y) = (start.opaque(), Self::ONE.opaque(), Self::ONE.opaque());
                for _ in 0..rounds {
                    for _ in 0..3 {
                        a = divide(a, x).opaque();
                        a = divide(a, y).opaque();
                        x = divide(x, y).opaque();
                        y = divide(y, x).opaque();
                    }
                }
                [a, x, y]
            }
        }
    )+};
}

division!(i16, i32; i32, i32; i64, i64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_opaque_number_is_the_number() {
        assert_eq!(((-5i16).opaque(), i32::MIN.opaque(), i64::MAX.opaque()), (-5, i32::MIN, i64::MAX));
        assert_eq!((1.5f32.opaque(), (-0.1f64).opaque()), (1.5, -0.1));
    }

    #[test]
    fn dividing_by_one_changes_nothing() {
        assert_eq!(i16::chain(-1234, 3), [-1234, 1, 1]);
        assert_eq!(i32::chain(i32::MIN, 3), [i32::MIN, 1, 1]);
        assert_eq!(i64::chain(1 << 62, 3), [1 << 62, 1, 1]);
    }
}
