package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/report/page"
)

// reportFile is the name of the page in the directory of a run.
const reportFile = "report.html"

var labReportLong = `report writes one page of HTML about one run or several, and prints their tables as Markdown. The page has everything in it:
it opens without a network, has no script, prints, and follows the reader's choice of light or dark.

It shows, as far as a run has measured them
  criteria           what the recipe demands, with limit, value and verdict; what was not measured says why
  the source         its figures beside ours
  points             one row for each target and load: medians over the repeats
  knee               p50, p99 and p99.9 against throughput, with bars between the extremes of the repeats
  by label           throughput, p99 and the recipe's own figures by each label that is a number: load, nodes, sizes, delays
  percentiles        the whole distribution, at each line's best load that was not saturated
  over time          a map of latencies, and every series: throughput, latencies, processors, memory, fsyncs
  environment        the machine, its limits, and what a probe of disk, network and memory has shown

Figures that are not of a durable system on a real network are labelled wherever they appear.

` + labExitHelp()

func newLabReport(a app) *cobra.Command {
	var out, into, pictures string
	cmd := &cobra.Command{
		Use:   "report DIR...",
		Short: "Write a page about runs that opens without a network, and print their tables",
		Long:  labReportLong,
		Example: `  millrace lab report runs/monday                         writes runs/monday/report.html
  millrace lab report runs/* --out all.html > all.md
  millrace lab report runs/* --out all.html --into runs.md --pictures img`,
		Args: wantDirs,
		RunE: func(cmd *cobra.Command, dirs []string) error {
			if pictures != "" && into == "" {
				return usageError{errors.New("--pictures: needs --into, the document that shows them; lab plot writes pictures alone")}
			}
			archives, err := readArchives(cmd, dirs)
			if err != nil {
				return err
			}
			if out == "" {
				out = filepath.Join(dirs[0], reportFile)
			}
			if err := archive.WriteFile(out, func(w io.Writer) error { return page.Write(w, archives) }); err != nil {
				return labError(err)
			}
			if into != "" {
				err := reportInto(into, pictures, archives)
				if err == nil {
					_, err = fmt.Fprintf(a.stderr, "the page is %s; the tables are in %s\n", out, into)
				}
				return labError(err)
			}
			for i, of := range archives {
				if i > 0 {
					fmt.Fprintln(a.stdout)
				}
				if err := page.ViewOf(of).WriteMarkdown(a.stdout); err != nil {
					return err
				}
			}
			_, err = fmt.Fprintf(a.stderr, "the page is %s\n", out)
			return err
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "the page (default: "+reportFile+" in the first directory); one that exists is replaced")
	cmd.Flags().StringVar(&into, "into", "", "write the tables into this Markdown document, between its lines "+strings.TrimSpace(intoBegin)+" and "+strings.TrimSpace(intoEnd)+", instead of printing them")
	cmd.Flags().StringVar(&pictures, "pictures", "", "with --into: write SVG pictures to this directory and show them in the document")
	return cmd
}

var labPlotLong = `plot draws a run for README files and documents: the throughput by each label that is a number, p99 against throughput, and
the latency by percentile, a file each. The pictures show the medians of the repeats, as the page of report does, and name
what the figures are not (durable, of a real network).

` + labExitHelp()

func newLabPlot(a app) *cobra.Command {
	var asSVG, asPNG bool
	var out string
	cmd := &cobra.Command{
		Use:   "plot DIR",
		Short: "Draw a run as SVG or PNG files",
		Long:  labPlotLong,
		Example: `  millrace lab plot runs/monday --svg
  millrace lab plot runs/monday --png --svg --out docs/img`,
		Args: wantArgs(1, "one directory of a run"),
		RunE: func(cmd *cobra.Command, dirs []string) error {
			var formats []string
			if asPNG {
				formats = append(formats, page.PNG)
			}
			if asSVG || !asPNG {
				formats = append(formats, page.SVG)
			}
			archives, err := readArchives(cmd, dirs)
			if err != nil {
				return err
			}
			if out == "" {
				out = dirs[0]
			}
			return labError(draw(a, archives[0], out, formats))
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVar(&asSVG, "svg", false, "write SVG; the default")
	flags.BoolVar(&asPNG, "png", false, "write PNG")
	flags.StringVar(&out, "out", "", "where to write the pictures (default: the directory of the run); those that exist are replaced")
	return cmd
}

// draw writes the pictures of a run, and prints their names.
func draw(a app, of *archive.Archive, dir string, formats []string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return lab.Cannot("Out", "cannot create %s: %v", dir, lab.Cause(err))
	}
	count := 0
	for _, format := range formats {
		for _, o := range page.PicturesOf(of, format).Outputs() {
			name := filepath.Join(dir, o.Name)
			if err := archive.WriteFile(name, o.Write); err != nil {
				return err
			}
			count++
			if _, err := fmt.Fprintln(a.stdout, name); err != nil {
				return err
			}
		}
	}
	if count == 0 {
		return statusError{exitCannot, fmt.Errorf("%s has nothing to draw: no repeat was finished, its points differ in no number, or a picture would have more than 16 curves; the page of lab report shows them", strings.TrimSuffix(of.Dir, "/"))}
	}
	return nil
}
