//! Small programs as trees of statements: the generated sources are printed from them, and their results are computed from them
//! in advance.
//!
//! Invariant: evaluating a function here gives the same result as compiling and running its C text: all numbers are unsigned
//! 32-bit integers.

use bigiron_sys::load::rng::SplitMix64;

/// Numbers of a unit's table.
pub const TABLE: usize = 16;
/// The order is parameters, then assignable variables, then loop counters.
pub const PARAMETERS: usize = 2;
pub const LOCALS: usize = 6;
pub const VARIABLES: usize = 8;
/// Maximum number of steps of a function, including the functions it calls: the program is made for compiling, not for long runs.
const STEPS: u64 = 4000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Add,
    Sub,
    Mul,
    Xor,
    And,
    Or,
    /// To the right, by a number below 32.
    Shift,
    /// To the left, by a number from 1 to 31.
    Rotate,
    /// By a number above 0.
    Modulo,
}

#[derive(Clone, Debug)]
pub enum Expression {
    Number(u32),
    Variable(usize),
    /// From the unit's own table, at an index modulo its length.
    Table(Box<Expression>),
    Binary(Op, Box<Expression>, Box<Expression>),
    /// A function of a unit with two arguments.
    Call(usize, usize, Box<[Expression; 2]>),
}

#[derive(Clone, Debug)]
pub enum Statement {
    Set(usize, Expression),
    /// The counter runs from 0 to below a number.
    Loop(usize, u32, Vec<Statement>),
    /// If the first is less than the second.
    If([Expression; 2], Vec<Statement>, Vec<Statement>),
    /// By an expression modulo the number of cases.
    Switch(Expression, Vec<Vec<Statement>>),
}

/// A function of two numbers with one result.
#[derive(Clone, Debug)]
pub struct Function {
    pub body: Vec<Statement>,
    pub result: Expression,
    /// Maximum number of steps.
    pub steps: u64,
}

/// The content of a source file.
#[derive(Clone, Debug)]
pub struct Unit {
    pub table: [u32; TABLE],
    pub functions: Vec<Function>,
    /// The numbers of the units whose functions it calls, all smaller than its own.
    pub calls: Vec<usize>,
}

/// All units.
#[derive(Clone, Debug)]
pub struct Units(pub Vec<Unit>);

impl Units {
    /// `count` units of `functions` functions each; the same arguments give the same units.
    pub fn draw(count: usize, functions: usize) -> Self {
        let mut units = Units(Vec::new());
        for number in 0..count {
            // Each unit has its own random stream: a larger tree begins with the units of a smaller one.
            let mut rng = SplitMix64::stream(number as u64, "build");
            let mut calls: Vec<usize> =
                (0..3).filter(|_| number > 0).map(|_| rng.below(number as u64) as usize).collect();
            calls.sort_unstable();
            calls.dedup();
            units.0.push(Unit { table: [0; TABLE].map(|_: u32| rng.next() as u32), functions: Vec::new(), calls });
            for _ in 0..functions {
                let function = Draw { units: &units, unit: number, rng: &mut rng, steps: 0 }.function();
                units.0[number].functions.push(function);
            }
        }
        units
    }

    /// The result of a function.
    pub fn call(&self, unit: usize, function: usize, arguments: [u32; PARAMETERS]) -> u32 {
        let mut variables = [0; VARIABLES];
        variables[..PARAMETERS].copy_from_slice(&arguments);
        let called = &self.0[unit].functions[function];
        self.execute(unit, &called.body, &mut variables);
        self.value(unit, &called.result, &variables)
    }

    fn execute(&self, unit: usize, body: &[Statement], variables: &mut [u32; VARIABLES]) {
        for statement in body {
            match statement {
                Statement::Set(to, from) => variables[*to] = self.value(unit, from, variables),
                Statement::Loop(counter, times, body) => {
                    for n in 0..*times {
                        variables[*counter] = n;
                        self.execute(unit, body, variables);
                    }
                    variables[*counter] = *times;
                }
                Statement::If([a, b], then, otherwise) => {
                    let less = self.value(unit, a, variables) < self.value(unit, b, variables);
                    self.execute(unit, if less { then } else { otherwise }, variables);
                }
                Statement::Switch(by, cases) => {
                    let case = self.value(unit, by, variables) as usize % cases.len();
                    self.execute(unit, &cases[case], variables);
                }
            }
        }
    }

    fn value(&self, unit: usize, expression: &Expression, variables: &[u32; VARIABLES]) -> u32 {
        match expression {
            Expression::Number(n) => *n,
            Expression::Variable(n) => variables[*n],
            Expression::Table(at) => self.0[unit].table[self.value(unit, at, variables) as usize % TABLE],
            Expression::Binary(op, a, b) => {
                let (a, b) = (self.value(unit, a, variables), self.value(unit, b, variables));
                match op {
                    Op::Add => a.wrapping_add(b),
                    Op::Sub => a.wrapping_sub(b),
                    Op::Mul => a.wrapping_mul(b),
                    Op::Xor => a ^ b,
                    Op::And => a & b,
                    Op::Or => a | b,
                    Op::Shift => a >> b,
                    Op::Rotate => a.rotate_left(b),
                    Op::Modulo => a % b,
                }
            }
            Expression::Call(unit_of, function, arguments) => {
                let [a, b] = &**arguments;
                // Functions have no side effects, so C may evaluate the arguments in another order.
                let arguments = [self.value(unit, a, variables), self.value(unit, b, variables)];
                self.call(*unit_of, *function, arguments)
            }
        }
    }
}

/// Draws a function of a unit, which calls only earlier functions.
struct Draw<'a> {
    units: &'a Units,
    unit: usize,
    rng: &'a mut SplitMix64,
    steps: u64,
}

impl Draw<'_> {
    fn below(&mut self, n: usize) -> usize {
        self.rng.below(n as u64) as usize
    }

    fn function(mut self) -> Function {
        // In C a variable that was never set is undefined.
        let mut body: Vec<Statement> =
            (PARAMETERS..LOCALS).map(|v| Statement::Set(v, Expression::Number(self.rng.next() as u32))).collect();
        let more = 4 + self.below(4);
        body.extend((0..more).map(|_| self.statement(0, 1)));
        let result = self.expression(LOCALS, 3, 1);
        Function { body, result, steps: self.steps + 8 }
    }

    /// A statement inside `depth` loops, which execute it `often` times.
    fn statement(&mut self, depth: usize, often: u64) -> Statement {
        self.steps += 4 * often;
        let readable = LOCALS + depth;
        match self.below(8) {
            0 | 1 if depth < VARIABLES - LOCALS => {
                let times = 2 + self.below(7) as u32;
                let count = 1 + self.below(3);
                let often = often * u64::from(times);
                let body = (0..count).map(|_| self.statement(depth + 1, often)).collect();
                Statement::Loop(LOCALS + depth, times, body)
            }
            2 => {
                let condition = [self.expression(readable, 1, often), self.expression(readable, 1, often)];
                let then = vec![self.set(readable, often), self.set(readable, often)];
                Statement::If(condition, then, vec![self.set(readable, often)])
            }
            3 => {
                let by = self.expression(readable, 1, often);
                let cases = 3 + self.below(6);
                Statement::Switch(by, (0..cases).map(|_| vec![self.set(readable, often)]).collect())
            }
            _ => self.set(readable, often),
        }
    }

    fn set(&mut self, readable: usize, often: u64) -> Statement {
        let to = PARAMETERS + self.below(LOCALS - PARAMETERS);
        Statement::Set(to, self.expression(readable, 2, often))
    }

    /// An expression of the first `readable` variables.
    fn expression(&mut self, readable: usize, depth: usize, often: u64) -> Expression {
        self.steps += often;
        let leaf = depth == 0;
        match self.below(10) {
            0 | 1 => Expression::Number(self.rng.next() as u32),
            2 => Expression::Table(Box::new(Expression::Variable(self.below(readable)))),
            3 if !leaf => self.called(readable, depth, often),
            4..=7 if !leaf => {
                let (a, b) = (self.expression(readable, depth - 1, often), self.expression(readable, depth - 1, often));
                let ops = [Op::Add, Op::Sub, Op::Mul, Op::Xor, Op::And, Op::Or];
                Expression::Binary(ops[self.below(ops.len())], Box::new(a), Box::new(b))
            }
            8 if !leaf => {
                let a = self.expression(readable, depth - 1, often);
                let (op, b) = match self.below(3) {
                    0 => (Op::Shift, self.below(32)),
                    1 => (Op::Rotate, 1 + self.below(31)),
                    _ => (Op::Modulo, 3 + self.below(1000)),
                };
                Expression::Binary(op, Box::new(a), Box::new(Expression::Number(b as u32)))
            }
            _ => Expression::Variable(self.below(readable)),
        }
    }

    /// A call, if there is a function short enough to be called this often.
    fn called(&mut self, readable: usize, depth: usize, often: u64) -> Expression {
        let others = &self.units.0[self.unit].calls;
        let unit = if others.is_empty() || self.rng.below(2) == 0 {
            self.unit
        } else {
            others[self.rng.below(others.len() as u64) as usize]
        };
        let there = self.units.0[unit].functions.len();
        let arguments = [self.expression(readable, depth - 1, often), self.expression(readable, depth - 1, often)];
        if there > 0 {
            let function = self.below(there);
            let steps = self.units.0[unit].functions[function].steps * often;
            if self.steps + steps <= STEPS {
                self.steps += steps;
                return Expression::Call(unit, function, Box::new(arguments));
            }
        }
        let [a, b] = arguments;
        Expression::Binary(Op::Add, Box::new(a), Box::new(b))
    }
}
