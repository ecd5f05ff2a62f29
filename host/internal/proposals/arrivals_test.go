package proposals

import (
	"math/rand/v2"
	"testing"
	"time"
)

// What commands have waited in sum is that of a list of the times at which they came, where they come evenly,
// and never far from it.
func TestArrivals(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		var a Arrivals
		var came []time.Duration
		now, even := time.Duration(random.Int64N(1e15)), random.IntN(2) == 0
		for range 1 + random.IntN(300) {
			before, together := len(came), 1
			if even {
				now += 1000
			} else {
				now += time.Duration(random.Int64N(2000))
				together += random.IntN(3) / 2
			}
			for range together {
				came = append(came, now)
			}
			if n := len(came); a.Reads(before, n) {
				a.Came(before, n, now)
			}
		}
		if a.First() != came[0] {
			t.Fatalf("the first came at %v, want %v", a.First(), came[0])
		}
		now += time.Duration(random.Int64N(1e6))
		check := func(came []time.Duration) {
			t.Helper()
			want := time.Duration(0)
			for _, at := range came {
				want += now - at
			}
			got, slack := a.Waited(len(came), now), time.Duration(len(came))*5000
			if n := len(came); n&(n-1) != 0 {
				slack += time.Duration(n) * (now - came[n-1]) // the latest reading is older
			}
			if got < want-slack || got > want+slack {
				t.Fatalf("%d commands have waited %v, want %v", len(came), got, want)
			}
		}
		check(came)
		left := came[:len(came)/2]
		for i := range left {
			left[i] = now
		}
		a.Left(len(left), now)
		now += time.Duration(random.Int64N(1e6))
		check(left)
	}
	for n := 1; n <= 100; n++ {
		var a Arrivals
		for i := 1; i <= 100; i++ {
			if a.Reads(i-1, i) {
				a.Came(i-1, i, time.Duration(i))
			}
		}
		all := a.Waited(100, 1000)
		if a.Withdrawn(100, n, 1000); a.Waited(n, 1000) > all*time.Duration(n)/100 || a.Waited(n, 1000) < all*time.Duration(n)/100-100 || a.Waited(n, 1010) != a.Waited(n, 1000)+time.Duration(10*n) {
			t.Fatalf("100 commands have waited %v; %d of them %v, and then %v", all, n, a.Waited(n, 1000), a.Waited(n, 1010))
		}
	}
	if (&Arrivals{}).Waited(0, time.Hour) != 0 {
		t.Error("no commands have waited")
	}
}
