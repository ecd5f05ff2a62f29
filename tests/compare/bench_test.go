package main

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/millrace/millrace/tests/compare/driver"
)

var (
	rounds = flag.Int("rounds", 9, "rounds of each case; a round samples every library once")
	sample = flag.Duration("sample", 20*time.Millisecond, "about how long one sample takes")
)

// results are the cases measured in this run, in order, for the tables.
var results []measured

// TestMain prints the tables when benchmarks have run. -rounds and -sample say how long they run. The testing
// package runs one library after the other with ever more iterations, and so cannot interleave them.
// Therefore every benchmark has one iteration, and reports what the rounds gave.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.benchtime", "1x"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if *rounds < 1 || *sample <= 0 {
		fmt.Fprintf(os.Stderr, "compare: -rounds is %d and -sample %v; both must be more than 0\n", *rounds, *sample)
		os.Exit(2)
	}
	code := m.Run()
	printTables(os.Stdout, results)
	if err := stopChildren(); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		code = 1
	}
	os.Exit(code)
}

// BenchmarkProposal is one leader of 1, 3 or 5 voters, by library; ns/op, B/op and allocs/op are for one
// proposal. allocs/proposal is allocs/op with its fraction, cpu-ns/op what the table shows.
func BenchmarkProposal(b *testing.B) { benchmark(b, driver.Proposals(), "proposal") }

// BenchmarkMessagesOfProposals is three nodes in one goroutine, which take proposals; ns/op, B/op and
// allocs/op are for one message delivered.
func BenchmarkMessagesOfProposals(b *testing.B) { benchmark(b, driver.Clusters(), "message") }

func benchmark(b *testing.B, cases []driver.Case, unit string) {
	children := startChildren(b)
	for _, what := range cases {
		b.Run(what.String(), func(b *testing.B) {
			m, err := measure(children, what, *rounds, *sample)
			if err != nil {
				b.Fatal(err)
			}
			results = append(results, m)
			for lib := range libraries {
				b.Run(libraries[lib].name, func(b *testing.B) { report(b, m, lib, unit) })
			}
		})
	}
}

func report(b *testing.B, m measured, lib int, unit string) {
	b.ReportAllocs()
	b.ReportMetric(m.of(lib, elapsed), "ns/op")
	b.ReportMetric(m.of(lib, cpu), "cpu-ns/op")
	b.ReportMetric(m.of(lib, size), "B/op")
	b.ReportMetric(m.of(lib, mallocs), "allocs/op")
	b.ReportMetric(m.of(lib, mallocs), "allocs/"+unit)
	if m.what.Cluster {
		b.ReportMetric(1e9/m.of(lib, elapsed), "msgs/s")
	}
}
