package report

import (
	"testing"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
)

func TestFigure(t *testing.T) {
	for _, tc := range []struct {
		unit archive.Unit
		v    float64
		want string
	}{
		{archive.UnitPerSecond, 8421.6, "8,422/s"},
		{archive.UnitPerSecond, 12.34, "12.3/s"},
		{archive.UnitMicroseconds, 11874, "11.9 ms"},
		{archive.UnitMicroseconds, 0, "0 µs"},
		{archive.UnitMicroseconds, -250, "−250 µs"},
		{archive.UnitSeconds, 0.012, "12.0 ms"},
		{archive.UnitSeconds, 12.34, "12.3 s"},
		{archive.UnitBytes, 999.6, "1.00 kB"},
		{archive.UnitBytes, 80e6, "80.0 MB"},
		{archive.UnitBytesPerSecond, 1.62e7, "16.2 MB/s"},
		{archive.UnitCores, 1.5, "1.50 cores"},
		{archive.UnitCount, 0, "0"},
		{archive.UnitCount, 110205.4, "110,205"},
		{archive.UnitCount, 0.0312, "0.0312"},
		{archive.UnitShare, 0.051, "5.10 %"},
		{archive.UnitRatio, 2.5, "2.50 ×"},
	} {
		if have := Figure(tc.unit, tc.v); have != tc.want {
			t.Errorf("%v %s: %q, want %q", tc.v, tc.unit, have, tc.want)
		}
	}
}
