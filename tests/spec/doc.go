// Package spec holds the protocol to a specification in TLA+ (the folder tla), with the model checker TLC:
//
//   - TestModels checks models of the specification, each with some of its parts switched on, completely
//     within small bounds, and TestSimulation a large one by random walks.
//   - TestPlantedErrors plants an error in the specification for each property, which TLC must find.
//   - TestTraces runs the core in sim/core, and checks that each step of each node is one of the
//     specification. TestCorruptedTracesAreRefused corrupts such traces, which TLC must refuse.
//
// docs/internals/spec.md says what is modelled and what is not. TLC needs Java, and comes from Maven Central
// (jar.go). Where one of them is missing, the tests are skipped and say so.
package spec
