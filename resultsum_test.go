package millrace

import (
	"errors"
	"math"
	"math/big"
	"net"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

func sumOf[T any](v T, whole bool) (sum uint64, form string) {
	p := planResults(reflect.TypeFor[T]())
	if p == nil {
		return 0, ""
	}
	s := summer{plan: p}
	return s.sum(reflect.ValueOf(&v).Elem(), whole), p.form
}

// sums is what a row says of two values: whether their sums are equal, and whether they are where what slices
// refer to is the same on all members.
type sums struct {
	name        string
	form        string
	equal       bool
	equalWhole  bool
	first, next func(whole bool) uint64
}

func row[T any](name string, a, b T, equal, equalWhole bool) sums {
	_, form := sumOf(a, false)
	of := func(v T) func(bool) uint64 {
		return func(whole bool) uint64 { sum, _ := sumOf(v, whole); return sum }
	}
	return sums{name, form, equal, equalWhole, of(a), of(b)}
}

// withMethods means what its methods say.
type withMethods struct {
	cached int
	Value  int
}

func (withMethods) String() string { return "" }

// Values that mean the same have the same sum, and values that differ have not, as far as their type proves
// it. What the type does not prove is left out.
func TestResultSums(t *testing.T) {
	now := time.Now()
	type plain struct {
		value string
		Err   error
		next  *plain
	}
	type wide struct{ A, B int64 }
	type answered struct {
		A      int
		Before []int `millrace:"awaited"`
	}
	text, line := strings.Repeat("x", 10_000), strings.Repeat("x", 1000)
	const same, other = true, false
	for _, r := range []sums{
		row("numbers", int64(1), 2, other, other),
		row("equal numbers", int64(7), 7, same, same),
		row("bools", true, false, other, other),
		row("durations", time.Second, time.Minute, other, other),
		row("floats", 0.5, 0.25, other, other),
		row("floats that are no numbers", math.NaN(), math.Float64frombits(math.Float64bits(math.NaN())^1), same, same),
		row("complex numbers", complex(1, 2), complex(2, 1), other, other),
		row("texts", "a", "b", other, other),
		row("the end of a long text", text+"a", text+"b", same, same),
		row("the end of a line", line+"a", line+"b", same, other),
		row("the length of a long text", text, text+"b", other, other),
		row("the monotonic clock", now, now.Round(0), same, same),
		row("zones", now, now.In(time.FixedZone("there", 3600)), same, same),
		row("times", now, now.Add(1), other, other),
		row("arrays", [2]int{1, 2}, [2]int{2, 1}, other, other),
		row("fields change places", wide{1, 2}, wide{2, 1}, other, other),
		row("unexported fields", plain{value: "a"}, plain{value: "b"}, other, other),
		row("errors", plain{Err: errors.New("a")}, plain{Err: errors.New("b")}, same, same),
		row("an error and none", plain{Err: errors.New("a")}, plain{}, other, other),
		row("pointers in a struct", plain{next: &plain{}}, plain{}, same, same),
		row("bytes", []byte("ab"), []byte("ac"), same, other),
		row("lengths of bytes", []byte("ab"), []byte("abc"), other, other),
		row("no bytes", nil, []byte{}, same, same),
		row("texts in a slice", []string{"a"}, []string{"b"}, same, other),
		row("structs in a slice", []wide{{1, 2}}, []wide{{2, 2}}, same, same),
		row("lengths of those", []wide{{1, 2}}, nil, other, other),
		row("what is cached", withMethods{cached: 1}, withMethods{cached: 2}, same, same),
		row("what is exported", withMethods{Value: 1}, withMethods{Value: 2}, other, other),
		row("what is awaited", answered{A: 1, Before: []int{1}}, answered{A: 1}, same, same),
		row("what is beside it", answered{A: 1}, answered{A: 2}, other, other),
		row("a byte field", struct{ b []byte }{[]byte("a")}, struct{ b []byte }{[]byte("b")}, same, other),
	} {
		if r.form == "" {
			t.Errorf("%s are left out", r.name)
		}
		if have := r.first(false) == r.next(false); have != r.equal {
			t.Errorf("%s (%s): equal is %v, want %v", r.name, r.form, have, r.equal)
		}
		if have := r.first(true) == r.next(true); have != r.equalWhole {
			t.Errorf("%s (%s), whole: equal is %v, want %v", r.name, r.form, have, r.equalWhole)
		}
	}
	for _, left := range []reflect.Type{
		reflect.TypeFor[*int](), reflect.TypeFor[map[string]int](), reflect.TypeFor[func()](), reflect.TypeFor[chan int](),
		reflect.TypeFor[uintptr](), reflect.TypeFor[struct{}](), reflect.TypeFor[net.IP](), reflect.TypeFor[big.Int](),
		reflect.TypeFor[sync.Mutex](), reflect.TypeFor[[0]int](), reflect.TypeFor[struct{ at *time.Time }](), reflect.TypeFor[struct{ at time.Time }](),
	} {
		if p := planResults(left); p != nil {
			t.Errorf("%v is not left out: %s", left, p.form)
		}
	}
}

// Types whose sums may differ for equal results have other forms.
func TestResultForms(t *testing.T) {
	seen := map[string]reflect.Type{}
	for _, typ := range []reflect.Type{
		reflect.TypeFor[int64](), reflect.TypeFor[int32](), reflect.TypeFor[uint64](), reflect.TypeFor[string](), reflect.TypeFor[[]byte](),
		reflect.TypeFor[[]string](), reflect.TypeFor[[][]byte](), reflect.TypeFor[struct{ A int }](), reflect.TypeFor[struct{ B int }](), reflect.TypeFor[struct{ A, B int }](),
		reflect.TypeFor[struct{ A struct{ B int } }](), reflect.TypeFor[[2]int](), reflect.TypeFor[[3]int](), reflect.TypeFor[time.Time](), reflect.TypeFor[error](), reflect.TypeFor[bool](),
	} {
		form := planResults(typ).resultForm()
		if other, taken := seen[form]; taken {
			t.Errorf("%v and %v have the form %q", typ, other, form)
		}
		seen[form] = typ
	}
}

// A result of any size costs little.
func TestResultSumsAreBounded(t *testing.T) {
	s := summer{plan: planResults(reflect.TypeFor[[1000][1000]int]())}
	v := new([1000][1000]int)
	s.sum(reflect.ValueOf(v).Elem(), true)
	if s.left > 0 {
		t.Errorf("%d values are left of %d", s.left, maxSummedValues)
	}
	many := make([]string, 1000)
	s = summer{plan: planResults(reflect.TypeFor[[]string]())}
	s.sum(reflect.ValueOf(&many).Elem(), true)
	if s.left != 0 {
		t.Errorf("%d values are left of %d", s.left, maxSummedValues)
	}
	result := struct {
		Value string
		N     int64
		At    time.Time
	}{strings.Repeat("x", 100_000), 1, time.Now()}
	s = summer{plan: planResults(reflect.TypeOf(result))}
	s.sum(reflect.ValueOf(&result).Elem(), true)
	if n := testing.AllocsPerRun(100, func() { s.sum(reflect.ValueOf(&result).Elem(), true) }); n > 0 || cap(s.scratch) > 2*maxSummedBytes {
		t.Errorf("%v allocations, %d bytes of scratch", n, cap(s.scratch))
	}
}

func BenchmarkResultSum(b *testing.B) {
	run := func(name string, v any) {
		b.Run(name, func(b *testing.B) {
			p := reflect.New(reflect.TypeOf(v))
			p.Elem().Set(reflect.ValueOf(v))
			s := summer{plan: planResults(reflect.TypeOf(v))}
			for b.Loop() {
				s.sum(p.Elem(), false)
			}
		})
	}
	run("int64", int64(1))
	run("text of 1 KiB", strings.Repeat("x", 1<<10))
	run("bytes of 1 KiB", make([]byte, 1<<10))
	run("struct", struct {
		Value string
		Err   error
		At    time.Time
	}{"value", nil, time.Now()})
}
