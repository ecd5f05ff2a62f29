module github.com/millrace/millrace/examples

go 1.26.0

require github.com/millrace/millrace v0.0.0

require golang.org/x/sys v0.49.0 // indirect

replace github.com/millrace/millrace => ../
