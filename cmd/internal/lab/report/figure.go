package report

import (
	"fmt"
	"math"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
)

// Figure renders a figure of an archive with three digits and its unit. A quantity with prefixes gets the one
// that suits it: "11.9 ms", "16.2 MB/s", "8,422/s".
func Figure(unit archive.Unit, v float64) string {
	switch unit {
	case archive.UnitPerSecond:
		return number(v) + "/s"
	case archive.UnitMicroseconds:
		return signed(v, func(v float64) string {
			if v == 0 {
				return "0 µs"
			}
			return Latency(v)
		})
	case archive.UnitSeconds:
		return signed(v, func(v float64) string {
			if v != 0 && v < 1 {
				return Latency(v * 1e6)
			}
			return digits(v) + " s"
		})
	case archive.UnitBytes:
		return prefixed(v, "B")
	case archive.UnitBytesPerSecond:
		return prefixed(v, "B/s")
	case archive.UnitCores:
		return digits(v) + " cores"
	case archive.UnitShare:
		return digits(v*100) + " %"
	case archive.UnitRatio:
		return digits(v) + " ×"
	}
	return number(v)
}

func signed(v float64, render func(float64) string) string {
	if v < 0 {
		return "−" + render(-v)
	}
	return render(v)
}

// number renders a figure that has no prefixes: 110,205, or 3.08.
func number(v float64) string {
	return signed(v, func(v float64) string {
		if v >= 999.5 {
			return Count(v)
		}
		return digits(v)
	})
}

// digits renders three digits that count, and not more after the point than it takes.
func digits(v float64) string {
	switch a := math.Abs(v); {
	case a == 0:
		return "0"
	case a >= 99.95:
		return fmt.Sprintf("%.0f", v)
	case a >= 9.995:
		return fmt.Sprintf("%.1f", v)
	case a >= 0.9995:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

var prefixes = []string{"", "k", "M", "G", "T", "P"}

// prefixed renders bytes with decimal prefixes, as disks and networks are sold.
func prefixed(v float64, unit string) string {
	return signed(v, func(v float64) string {
		i := 0
		for ; v >= 999.5 && i < len(prefixes)-1; i++ {
			v /= 1000
		}
		return digits(v) + " " + prefixes[i] + unit
	})
}
