// Package simulate runs many seeds of the simulator, and is the work behind millrace sim. It runs the seeds
// of a plan on all cores (engine.go), and adds up what they show in a Result (result.go). A result can be
// kept in a file between two runs (file.go) and merged with results of other machines (merge.go). It is
// written as text and as a page of HTML (text.go, html.go). A failure is made smaller, with the way to see
// it again (failure.go).
//
// A *level* is one kind of run: the core alone, or a scenario of package sim (level.go). A *profile* is a
// mixture of levels (profile.go): the seed alone says in which level it runs, so seeds can be divided among
// machines.
//
// Results are added in the order of the seeds, whichever run ends first. So a result always stands for all
// seeds before one number. An interrupt loses only what comes after it, and two results are of the same
// seeds or of different ones. Rejected: to remember which single seeds are done, in a set that grows with
// every seed.
//
// No package here knows the command line: a refusal names a field of the plan (lab.FieldError), and
// cmd/millrace translates it into a flag.
package simulate
