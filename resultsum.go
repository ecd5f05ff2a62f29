package millrace

import (
	"fmt"
	"hash/crc32"
	"math"
	"math/bits"
	"reflect"
	"strings"
	"time"
)

// Members compare the results of their machines by default, without keeping them. What of a result is the
// same on every member is decided by its type, and the rest is left out:
//
//	numbers, bools, strings        the value; of a string the length and the first 128 bytes
//	time.Time                      the instant, without its zone and without the monotonic clock
//	arrays, structs                their parts; unexported fields of a type with methods are left out
//	slices                         the length; nil is an empty one, as it may be after a snapshot
//	slices of the first kind       the values too, of the last command of a batch that all members end there;
//	                               then 4 KiB of bytes and strings
//	interfaces, as error           whether it is nil
//	pointers, maps, functions,     nothing
//	channels, uintptr
//	fields tagged                  nothing: the machine sets them where the result is awaited
//	`millrace:"awaited"`
//	slices with methods            nothing: two values may mean the same, as 4 and 16 bytes of a net.IP
//
// What a pointer, a map or a slice refers to may be a part of the machine's state. A later command of the
// same batch changes it then, and members have other batches.
//
// No function of the user is called: neither String nor MarshalJSON. resultForm has the whole type in it, so
// a program whose results have another form is not compared with this one.

const (
	maxSummedBytes  = 4 << 10 // of a string or a slice of bytes, about once a second,
	maxSummedStart  = 128     // and of a string of each result
	maxSummedValues = 256     // of a result
)

type summedKind byte

const (
	summedNumber summedKind = iota // of any size, and bool
	summedFloat
	summedComplex
	summedString
	summedTime
	summedLength // of a slice, whose elements are no values
	summedSlice
	summedArray
	summedStruct
	summedIsNil
)

// resultPlan says how values of a type are summed up.
type resultPlan struct {
	kind   summedKind
	get    func(reflect.Value) uint64 // of a number
	elem   *resultPlan                // of an array or a slice
	fields []plannedField             // of a struct
	form   string
}

type plannedField struct {
	index int
	plan  *resultPlan
}

// planResults returns the plan for a type, or nil if nothing of its values is surely the same on all members.
func planResults(t reflect.Type) *resultPlan { return planResult(t, true) }

// planResult is planResults for a part. exported says whether the part can be taken out of its struct.
func planResult(t reflect.Type, exported bool) *resultPlan {
	form := t.Kind().String()
	switch t.Kind() {
	case reflect.Bool:
		return &resultPlan{kind: summedNumber, form: form, get: func(v reflect.Value) uint64 {
			if v.Bool() {
				return 1
			}
			return 0
		}}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return &resultPlan{kind: summedNumber, form: form, get: func(v reflect.Value) uint64 { return uint64(v.Int()) }}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return &resultPlan{kind: summedNumber, form: form, get: reflect.Value.Uint}
	case reflect.Float32, reflect.Float64:
		return &resultPlan{kind: summedFloat, form: form}
	case reflect.Complex64, reflect.Complex128:
		return &resultPlan{kind: summedComplex, form: form}
	case reflect.String:
		return &resultPlan{kind: summedString, form: form}
	case reflect.Interface:
		return &resultPlan{kind: summedIsNil, form: form}
	case reflect.Slice:
		if hasMethods(t) {
			return nil
		}
		if elem := planResult(t.Elem(), exported); elem != nil && elem.kind <= summedString {
			return &resultPlan{kind: summedSlice, elem: elem, form: "[]" + elem.form}
		}
		return &resultPlan{kind: summedLength, form: "[]"}
	case reflect.Array:
		if elem := planResult(t.Elem(), exported); elem != nil && t.Len() > 0 {
			return &resultPlan{kind: summedArray, elem: elem, form: fmt.Sprintf("[%d]%s", t.Len(), elem.form)}
		}
	case reflect.Struct:
		if t == reflect.TypeFor[time.Time]() {
			if !exported {
				return nil
			}
			return &resultPlan{kind: summedTime, form: "time"}
		}
		return planStruct(t, exported)
	}
	return nil
}

func planStruct(t reflect.Type, exported bool) *resultPlan {
	p := &resultPlan{kind: summedStruct}
	var form strings.Builder
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Name == "_" || !f.IsExported() && hasMethods(t) || f.Tag.Get("millrace") == "awaited" {
			continue
		}
		if plan := planResult(f.Type, exported && f.IsExported()); plan != nil {
			p.fields = append(p.fields, plannedField{i, plan})
			fmt.Fprintf(&form, "%s %s;", f.Name, plan.form)
		}
	}
	if len(p.fields) == 0 {
		return nil
	}
	p.form = "{" + form.String() + "}"
	return p
}

// hasMethods reports whether a type, or a pointer to it, has exported methods: then its values mean what they
// say, and not what is in them.
func hasMethods(t reflect.Type) bool {
	return t.NumMethod() > 0 || reflect.PointerTo(t).NumMethod() > 0
}

// resultForm names how results are summed up. The number changes when the sums are computed in another way.
func (p *resultPlan) resultForm() string { return "sums 1 " + p.form }

// summer sums up results. It is used by one goroutine at a time.
type summer struct {
	plan    *resultPlan
	left    int    // of maxSummedValues
	scratch []byte // for the bytes of strings
}

// sum returns a number for the result in v. whole says that what slices refer to is the same on all members.
func (s *summer) sum(v reflect.Value, whole bool) uint64 {
	s.left = maxSummedValues
	return s.add(0, s.plan, v, whole)
}

func (s *summer) add(sum uint64, p *resultPlan, v reflect.Value, whole bool) uint64 {
	if s.left--; s.left < 0 {
		return sum
	}
	switch p.kind {
	case summedNumber:
		return mixResult(sum, p.get(v))
	case summedFloat:
		return mixResult(sum, floatBits(v.Float()))
	case summedComplex:
		c := v.Complex()
		return mixResult(mixResult(sum, floatBits(real(c))), floatBits(imag(c)))
	case summedString:
		return s.addString(sum, v.String(), whole)
	case summedTime:
		t := v.Addr().Interface().(*time.Time)
		return mixResult(mixResult(sum, uint64(t.Unix())), uint64(t.Nanosecond()))
	case summedIsNil:
		if v.IsNil() {
			return mixResult(sum, 1)
		}
		return mixResult(sum, 2)
	case summedStruct:
		for _, f := range p.fields {
			sum = s.add(sum, f.plan, v.Field(f.index), whole)
		}
		return sum
	}
	n := v.Len() // of a slice or an array
	sum = mixResult(sum, uint64(n))
	switch {
	case p.kind == summedLength, p.kind == summedSlice && !whole:
		return sum
	case p.kind == summedSlice && v.Type().Elem().Kind() == reflect.Uint8:
		return s.addBytes(sum, v.Bytes())
	}
	for i := 0; i < n && s.left > 0; i++ {
		sum = s.add(sum, p.elem, v.Index(i), whole)
	}
	return sum
}

func (s *summer) addBytes(sum uint64, b []byte) uint64 {
	return mixResult(sum, uint64(crc32.Checksum(b[:min(len(b), maxSummedBytes)], resultTable)))
}

func (s *summer) addString(sum uint64, text string, whole bool) uint64 {
	most := maxSummedStart
	if whole {
		most = maxSummedBytes
	}
	s.scratch = append(s.scratch[:0], text[:min(len(text), most)]...)
	return s.addBytes(mixResult(sum, uint64(len(text))), s.scratch)
}

// floatBits returns the bits of a number. There are many that are not a number, and they are one.
func floatBits(f float64) uint64 {
	if math.IsNaN(f) {
		return math.MaxUint64
	}
	return math.Float64bits(f)
}

var resultTable = crc32.MakeTable(crc32.Castagnoli)

// mixResult adds a value to a sum, such that two sums that differ stay different while the same values are
// added.
func mixResult(sum, v uint64) uint64 { return bits.RotateLeft64(sum^v, 29) * 0x9e3779b97f4a7c15 }
