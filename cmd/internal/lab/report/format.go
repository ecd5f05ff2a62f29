package report

import "fmt"

// Plural renders "1 client" and "1,000 clients".
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return Count(float64(n)) + " " + noun + "s"
}

// OrUnknown renders an empty text as "unknown".
func OrUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

// Count renders 110205.4 as "110,205".
func Count(x float64) string {
	digits := fmt.Sprintf("%.0f", x)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// Latency renders microseconds with three digits and a unit, and 0 as "-".
func Latency(us float64) string {
	switch {
	case us == 0:
		return "-"
	case us < 9.995:
		return fmt.Sprintf("%.2f µs", us)
	case us < 99.95:
		return fmt.Sprintf("%.1f µs", us)
	case us < 999.5:
		return fmt.Sprintf("%.0f µs", us)
	case us < 9_995:
		return fmt.Sprintf("%.2f ms", us/1e3)
	case us < 99_950:
		return fmt.Sprintf("%.1f ms", us/1e3)
	case us < 999_500:
		return fmt.Sprintf("%.0f ms", us/1e3)
	}
	return fmt.Sprintf("%.2f s", us/1e6)
}

// Optional renders a figure that a target may not have: 0 is "-".
func Optional(x float64, digits int) string {
	if x == 0 {
		return "-"
	}
	return fmt.Sprintf("%.*f", digits, x)
}

// Size renders 1024 as "1 KiB".
func Size(bytes int) string {
	switch {
	case bytes >= 1<<20 && bytes%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", bytes>>20)
	case bytes >= 1<<10 && bytes%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", bytes>>10)
	}
	return fmt.Sprintf("%d bytes", bytes)
}
