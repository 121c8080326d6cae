//! The shim's functions and structures as Rust sees them (`shim/shim.h`).
//!
//! Everything here may be called from Rust frames: no longjmp comes out of any of it.

use std::ffi::{c_char, c_int, c_void};

/// A value of the interpreter (word boxing: one machine word).
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RawValue {
    word: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Text {
    pub(crate) bytes: *const c_char,
    pub(crate) size: usize,
}

impl Text {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self {
            bytes: bytes.as_ptr().cast(),
            size: bytes.len(),
        }
    }
}

pub(crate) const FINE: c_int = 0;
pub(crate) const RAISED: c_int = 1;

pub(crate) const NIL: i32 = 0;
pub(crate) const TRUE: i32 = 1;
pub(crate) const FALSE: i32 = 2;
pub(crate) const INTEGER: i32 = 3;
pub(crate) const FLOAT: i32 = 4;
pub(crate) const BYTES: i32 = 5;
pub(crate) const TREE: i32 = 6;
pub(crate) const SELF: i32 = 7;
pub(crate) const ARGUMENT: i32 = 8;
pub(crate) const ATTACH: i32 = 9;
pub(crate) const WAIT: i32 = 10;
pub(crate) const RAISE: i32 = 11;
pub(crate) const STAMP: i32 = 12;

#[repr(C)]
pub(crate) struct RawAnswer {
    pub(crate) integer: i64,
    pub(crate) number: f64,
    pub(crate) bytes: *const c_char,
    pub(crate) size: usize,
    pub(crate) name: *const c_char,
    pub(crate) name_size: usize,
    pub(crate) kind: i32,
}

impl RawAnswer {
    #[inline]
    pub(crate) fn nil() -> Self {
        Self {
            integer: 0,
            number: 0.0,
            bytes: std::ptr::null(),
            size: 0,
            name: std::ptr::null(),
            name_size: 0,
            kind: NIL,
        }
    }
}

#[repr(C)]
pub(crate) struct HostTable {
    pub(crate) state: *mut c_void,
    pub(crate) dispatch:
        unsafe extern "C" fn(*mut c_void, u32, RawValue, usize, *const RawValue, *mut RawAnswer),
    pub(crate) cancel: unsafe extern "C" fn(*mut c_void),
    pub(crate) dropped: unsafe extern "C" fn(*mut c_void, u64),
    pub(crate) failed: unsafe extern "C" fn(*mut c_void, Text, Text, Text),
}

/// What there must be for an interpreter to begin.
pub(crate) const OPENING_BYTES: usize = 512 << 10;

/// What interpreters hold together, and may.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawMemory {
    pub(crate) bytes: usize,
    pub(crate) bytes_max: usize,
    pub(crate) vms: usize,
    pub(crate) share: usize,
    pub(crate) common: usize,
}

/// An open interpreter; only the shim looks inside.
#[repr(C)]
pub(crate) struct RawVm {
    _opaque: [u8; 0],
}

unsafe extern "C" {
    pub(crate) fn ngy_open(
        host: *const HostTable,
        memory: *mut RawMemory,
        cpu_ns_max: u64,
    ) -> *mut RawVm;
    pub(crate) fn ngy_unseal(vm: *mut RawVm);
    pub(crate) fn ngy_set_cpu(vm: *mut RawVm, cpu_ns_max: u64);
    pub(crate) fn ngy_close(vm: *mut RawVm);
    pub(crate) fn ngy_empty(vm: *mut RawVm);
    pub(crate) fn ngy_discard(vm: *mut RawVm);
    pub(crate) fn ngy_class(
        vm: *mut RawVm,
        outer: Text,
        name: Text,
        superclass: Text,
        kind: c_int,
    ) -> c_int;
    pub(crate) fn ngy_method(
        vm: *mut RawVm,
        class: Text,
        name: Text,
        kind: c_int,
        spec: u64,
    ) -> c_int;
    pub(crate) fn ngy_constant(
        vm: *mut RawVm,
        class: Text,
        name: Text,
        value: *const RawAnswer,
    ) -> c_int;
    pub(crate) fn ngy_always(
        vm: *mut RawVm,
        class: Text,
        name: Text,
        value: *const RawAnswer,
    ) -> c_int;
    pub(crate) fn ngy_compile(
        vm: *mut RawVm,
        source: Text,
        name: Text,
        line: u16,
        root: usize,
    ) -> c_int;
    pub(crate) fn ngy_run(vm: *mut RawVm, root: usize) -> c_int;
    pub(crate) fn ngy_fiber(vm: *mut RawVm, root: usize) -> c_int;
    pub(crate) fn ngy_resume(vm: *mut RawVm, root: usize, value: *const RawAnswer) -> c_int;
    pub(crate) fn ngy_ended(vm: *const RawVm) -> c_int;
    pub(crate) fn ngy_result(vm: *const RawVm) -> RawValue;
    pub(crate) fn ngy_let_go(vm: *mut RawVm, root: usize);
    pub(crate) fn ngy_collect(vm: *mut RawVm) -> c_int;
    pub(crate) fn ngy_roots_own() -> usize;
    pub(crate) fn ngy_bytes(vm: *const RawVm) -> usize;
    pub(crate) fn ngy_objects(vm: *const RawVm) -> usize;
    pub(crate) fn ngy_instructions(vm: *const RawVm) -> u64;
    pub(crate) fn ngy_count(vm: *mut RawVm, counting: c_int);

    pub(crate) fn ngy_kind(value: RawValue) -> c_int;
    pub(crate) fn ngy_integer(value: RawValue) -> i64;
    pub(crate) fn ngy_float(value: RawValue) -> f64;
    pub(crate) fn ngy_string(value: RawValue) -> Text;
    pub(crate) fn ngy_symbol(vm: *mut RawVm, value: RawValue) -> Text;
    pub(crate) fn ngy_array_length(value: RawValue) -> usize;
    pub(crate) fn ngy_array_at(value: RawValue, index: usize) -> RawValue;
    pub(crate) fn ngy_hash_each(
        vm: *mut RawVm,
        value: RawValue,
        data: *mut c_void,
        each: unsafe extern "C" fn(*mut c_void, RawValue, RawValue),
    );
    pub(crate) fn ngy_where(
        vm: *mut RawVm,
        root: usize,
        data: *mut c_void,
        each: unsafe extern "C" fn(*mut c_void, Text),
    );
    pub(crate) fn ngy_handle(value: RawValue) -> u64;
    pub(crate) fn ngy_stamp(value: RawValue) -> u64;

    pub(crate) fn ngy_ticker_start(period_ns: u64, ticker: *mut *mut c_void) -> c_int;
    pub(crate) fn ngy_ticker_stop(ticker: *mut c_void);

    #[cfg(test)]
    pub(crate) fn ngy_sizes(sizes: *mut usize);
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::{OPENING_BYTES, RawAnswer, RawMemory, RawValue, ngy_sizes};

    #[test]
    fn shim_bindings_and_rust_agree_on_sizes_and_offsets() {
        let mut sizes = [0; 8];
        // SAFETY: it writes eight numbers.
        unsafe { ngy_sizes(sizes.as_mut_ptr()) };
        let [value, answer, state, context, gc, callinfo, memory, opening] = sizes;
        assert_eq!(opening, OPENING_BYTES);
        assert_eq!(memory, size_of::<RawMemory>());
        assert_eq!(value, size_of::<RawValue>());
        assert_eq!(value, size_of::<mruby3_sys::mrb_value>());
        assert_eq!(answer, size_of::<RawAnswer>());
        assert_eq!(state, size_of::<mruby3_sys::mrb_state>());
        assert_eq!(context, offset_of!(mruby3_sys::mrb_state, c));
        assert_eq!(gc, offset_of!(mruby3_sys::mrb_state, gc));
        assert_eq!(callinfo, size_of::<mruby3_sys::mrb_callinfo>());
    }
}
