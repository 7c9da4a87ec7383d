//! Values as people read them: three digits and a unit.

use super::catalog::Unit;

/// `12.3 µs`, `1.25 GB/s`, `4.10 MiB`.
pub(crate) fn with_unit(value: f64, unit: Unit) -> String {
    let (value, name) = in_unit(value, unit);
    format!("{} {name}", three_digits(value))
}

/// `15 µs`, for numbers that were chosen and not measured.
pub(crate) fn round(value: f64, unit: Unit) -> String {
    let (value, name) = in_unit(value, unit);
    format!("{} {name}", (value * 1e3).round() / 1e3)
}

fn in_unit(value: f64, unit: Unit) -> (f64, &'static str) {
    let steps: &[(f64, &'static str)] = match unit {
        Unit::Seconds => &[(1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")],
        Unit::BytesPerSecond => &[(1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s")],
        Unit::LaunchesPerSecond => &[(1e6, "M/s"), (1e3, "k/s"), (1.0, "/s")],
        Unit::Bytes => &[(1_073_741_824.0, "GiB"), (1_048_576.0, "MiB"), (1024.0, "KiB"), (1.0, "B")],
    };
    // As few steps down as leave a digit before the point; 0.9996 counts as one.
    let fits = |(size, _): &&(f64, &'static str)| value.abs() / size >= 0.9995;
    let (size, name) = steps.iter().find(fits).or(steps.last()).copied().unwrap_or((1.0, ""));
    (value / size, name)
}

/// `1.07×`.
pub(crate) fn times(ratio: f64) -> String {
    format!("{}×", three_digits(ratio))
}

/// `±4 %`; nothing if it cannot be seen.
pub(crate) fn spread(part: f64) -> String {
    match part * 100.0 {
        percent if percent >= 0.5 => format!("±{percent:.0} %"),
        _ => String::new(),
    }
}

/// `12.3`.
pub(crate) fn three_digits(value: f64) -> String {
    let digits = match value.abs() {
        large if large >= 99.95 => 0,
        middle if middle >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_three_digits_and_the_unit_that_suits_them() {
        for (value, unit, text) in [
            (12.34e-6, Unit::Seconds, "12.3 µs"),
            (0.99996e-3, Unit::Seconds, "1.00 ms"),
            (450e-9, Unit::Seconds, "450 ns"),
            (0.0, Unit::Seconds, "0.00 ns"),
            (2.5, Unit::Seconds, "2.50 s"),
            (1.254e9, Unit::BytesPerSecond, "1.25 GB/s"),
            (31_415.0, Unit::LaunchesPerSecond, "31.4 k/s"),
            (4.1 * 1_048_576.0, Unit::Bytes, "4.10 MiB"),
            (-8192.0, Unit::Bytes, "-8.00 KiB"),
            (800.0, Unit::LaunchesPerSecond, "800 /s"),
        ] {
            assert_eq!(with_unit(value, unit), text);
        }
    }

    #[test]
    fn chosen_numbers_have_no_more_digits_than_they_need() {
        assert_eq!(round(15e-6, Unit::Seconds), "15 µs");
        assert_eq!(round(8_388_608.0, Unit::Bytes), "8 MiB");
    }

    #[test]
    fn ratios_and_spreads_are_short() {
        assert_eq!(times(1.066), "1.07×");
        assert_eq!(times(0.5), "0.50×");
        assert_eq!(times(123.4), "123×");
        assert_eq!(spread(0.041), "±4 %");
        assert_eq!(spread(0.001), "");
    }
}
