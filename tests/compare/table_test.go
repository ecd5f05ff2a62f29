package main

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// The aims of the core. The tables show them beside what was measured. No test asserts them: a time depends
// on the machine as much as on the code.
const (
	aimAllocsSingle = 2.0 // allocations of one proposal in a turn of its own
	aimAllocsMany   = 0.1 // of one proposal among 64
	aimTimeMany     = 0.5 // processor time of one proposal among 64, as a share of v3.6.0's
	aimMessages     = 2e6 // a second, delivered in a cluster on one processor
)

// printTables writes what was measured in this run for people. The lines of the benchmarks are for tools.
func printTables(w io.Writer, all []measured) {
	var proposals, clusters []measured
	for _, m := range all {
		if m.what.Cluster {
			clusters = append(clusters, m)
		} else {
			proposals = append(proposals, m)
		}
	}
	if len(proposals) > 0 {
		fmt.Fprintf(w, "\nOne proposal. Processor time: median of %d rounds; ratio: millrace / the other, in the same round, median (quartiles).\n", len(proposals[0].samples[0]))
		printProposals(w, proposals)
	}
	if len(clusters) > 0 {
		fmt.Fprintf(w, "\nThree nodes in one goroutine. Millions of messages delivered in a second of one processor; median of %d rounds.\n", len(clusters[0].samples[0]))
		printClusters(w, clusters)
	}
	if len(all) > 0 {
		fmt.Fprintf(w, "\nElapsed time was %.2f times processor time (median of all cases; well over 1: the machine was busy).\n", waiting(all))
	}
}

func printProposals(w io.Writer, all []measured) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\tns\t\t\tratio to\t\tallocations\t\t\taim: allocations\taim: ratio to v3.6.0\t")
	fmt.Fprintln(t, "case\tmillrace\tv3.6.0\tv3.7.0\tv3.6.0\tv3.7.0\tmillrace\tv3.6.0\tv3.7.0\t\t\t")
	for _, m := range all {
		fmt.Fprintf(t, "%s\t%.0f\t%.0f\t%.0f\t%v\t%v\t%.2f\t%.2f\t%.2f\t", m.what,
			m.of(0, cpu), m.of(1, cpu), m.of(2, cpu), m.ratio(1), m.ratio(2), m.of(0, mallocs), m.of(1, mallocs), m.of(2, mallocs))
		if m.what.PerTurn() == 1 {
			fmt.Fprintf(t, "%s\t-\t\n", atMost(m.of(0, mallocs), aimAllocsSingle))
		} else {
			fmt.Fprintf(t, "%s\t%s\t\n", atMost(m.of(0, mallocs), aimAllocsMany), atMost(m.ratio(1).median, aimTimeMany))
		}
	}
	t.Flush()
}

func printClusters(w io.Writer, all []measured) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "case\tmillrace\tv3.6.0\tv3.7.0\ttime ratio to v3.6.0\tto v3.7.0\taim\t")
	for _, m := range all {
		perSecond := func(lib int) float64 { return 1e9 / m.of(lib, cpu) }
		fmt.Fprintf(t, "%s\t%.2f\t%.2f\t%.2f\t%v\t%v\t%s\t\n", m.what, perSecond(0)/1e6, perSecond(1)/1e6, perSecond(2)/1e6,
			m.ratio(1), m.ratio(2), verdict(perSecond(0) >= aimMessages, fmt.Sprintf("≥ %.0f", aimMessages/1e6)))
	}
	t.Flush()
}

func (s spread) String() string { return fmt.Sprintf("%.2f (%.2f–%.2f)", s.median, s.low, s.high) }

func atMost(have, aim float64) string { return verdict(have <= aim, fmt.Sprintf("≤ %v", aim)) }

func verdict(met bool, aim string) string {
	if met {
		return aim + ": met"
	}
	return aim + ": not met"
}

// waiting is elapsed time divided by processor time, the median of all cases.
func waiting(all []measured) float64 {
	var vs []float64
	for _, m := range all {
		for lib := range m.samples {
			vs = append(vs, m.of(lib, elapsed)/m.of(lib, cpu))
		}
	}
	return spreadOf(vs).median
}
