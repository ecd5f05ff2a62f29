package wal

const golden = `
`
