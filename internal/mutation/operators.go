package mutation

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"strings"
)

// walk goes over the functions of one file and collects what may be changed.
type walk struct {
	src     *source
	pkg     *sourcePackage
	file    *sourceFile
	parents []ast.Node // of the node that is looked at, the outermost first
}

// candidates finds all mutants of a package. Some of them do not type-check (check.go).
func (s *source) candidates(p *sourcePackage) {
	for _, f := range p.files {
		f.places = nil
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
				w, from := &walk{src: s, pkg: p, file: f}, len(f.places)
				w.function(fn)
				for _, place := range f.places[from:] {
					place.within = nameOf(fn)
				}
			}
		}
		f.sortPlaces()
	}
}

// nameOf returns the name of a function and, of a method, its receiver as the source writes it.
func nameOf(fn *ast.FuncDecl) string {
	if fn.Recv == nil || len(fn.Recv.List) == 0 {
		return fn.Name.Name
	}
	return types.ExprString(fn.Recv.List[0].Type) + "." + fn.Name.Name
}

// function visits every node of a function, except assertions, log sentences and capacities: a correct
// program does the same without them.
func (w *walk) function(fn *ast.FuncDecl) {
	ast.Inspect(fn, func(n ast.Node) bool {
		if n == nil {
			w.parents = w.parents[:len(w.parents)-1]
			return true
		}
		if w.withoutEffect(n) {
			return false
		}
		switch n := n.(type) {
		case ast.Expr:
			w.expression(n)
		case ast.Stmt:
			w.statement(n)
		}
		w.parents = append(w.parents, n)
		return true
	})
}

// withoutEffect reports whether n asserts a rule of our own code, writes a sentence for a log or says a
// capacity, and does nothing else; or is switched by a planted bug.
func (w *walk) withoutEffect(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.ExprStmt:
		call, ok := n.X.(*ast.CallExpr)
		return ok && (isName(call.Fun, "invariant", "panic") || isLogger(w.pkg.info, call.Fun))
	case ast.Expr:
		make, ok := w.parent().(*ast.CallExpr)
		const sized = 3 // make(T, length, capacity)
		return ok && isName(make.Fun, "make") && len(make.Args) == sized && make.Args[sized-1] == n
	case *ast.IfStmt:
		if strings.Contains(w.src.text(w.file, n.Cond), "planted.") {
			return true
		}
		for _, s := range n.Body.List {
			if !w.withoutEffect(s) {
				return false
			}
		}
		return n.Else == nil && len(n.Body.List) > 0
	}
	return false
}

func isName(e ast.Expr, names ...string) bool {
	id, ok := e.(*ast.Ident)
	for _, n := range names {
		if ok && id.Name == n {
			return true
		}
	}
	return false
}

// isLogger reports whether e is a method of a logger, or one of ours that hands its sentence to a logger.
func isLogger(info *types.Info, e ast.Expr) bool {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	t := types.TypeString(info.TypeOf(sel.X), nil)
	return t == "*log/slog.Logger" || strings.HasSuffix(t, "/raft.Logger") || isName(sel.Sel, "debugf", "infof", "warningf")
}

func (w *walk) parent() ast.Node {
	if len(w.parents) == 0 {
		return nil
	}
	return w.parents[len(w.parents)-1]
}

// change adds a mutant of an expression: is takes its place.
func (w *walk) change(operator string, e ast.Expr, is string) {
	t := w.pkg.info.TypeOf(e)
	was := w.src.text(w.file, e)
	if t == nil || strings.Contains(was, "recover(") || strings.Contains(was, "planted.") {
		return // recover works in the function that is deferred, and generated code wraps expressions into functions
	}
	name, ok := w.pkg.nameIn(w.file, t)
	if !ok {
		return
	}
	lo, hi := w.src.span(e)
	w.file.addMutant(placeExpression, lo, hi, name, w.newMutant(operator, e, is), is)
}

func (w *walk) expression(e ast.Expr) {
	if w.isCondition(e) && !isEquality(e) {
		w.change(opNegate, e, "!("+w.src.text(w.file, e)+")")
	}
	if b, ok := e.(*ast.BinaryExpr); ok {
		w.binary(b)
	}
	w.constant(e)
}

func (w *walk) isCondition(e ast.Expr) bool {
	switch p := w.parent().(type) {
	case *ast.IfStmt:
		return p.Cond == e
	case *ast.ForStmt:
		return p.Cond == e
	}
	return false
}

func isEquality(e ast.Expr) bool {
	b, ok := e.(*ast.BinaryExpr)
	return ok && (b.Op == token.EQL || b.Op == token.NEQ)
}

var exchanged = map[token.Token]struct {
	with     token.Token
	operator string
}{
	token.LSS: {token.LEQ, opBoundary}, token.LEQ: {token.LSS, opBoundary},
	token.GTR: {token.GEQ, opBoundary}, token.GEQ: {token.GTR, opBoundary},
	token.EQL: {token.NEQ, opEqual}, token.NEQ: {token.EQL, opEqual},
	token.LAND: {token.LOR, opConnect}, token.LOR: {token.LAND, opConnect},
	token.ADD: {token.SUB, opSign}, token.SUB: {token.ADD, opSign},
}

func (w *walk) binary(e *ast.BinaryExpr) {
	to, ok := exchanged[e.Op]
	if !ok || w.pkg.info.Types[e].Value != nil {
		return // the value of a constant expression is changed as a whole
	}
	if to.operator == opSign && !isNumber(w.pkg.info.TypeOf(e)) {
		return
	}
	x, y := w.src.text(w.file, e.X), w.src.text(w.file, e.Y)
	if to.operator == opConnect {
		x, y = "("+x+")", "("+y+")"
	}
	w.change(to.operator, e, x+" "+to.with.String()+" "+y)
	if to.operator == opConnect && !w.inChain(e) {
		operands := chain(e, e.Op)
		for i := range operands {
			var rest []string
			for j, o := range operands {
				if i != j {
					rest = append(rest, w.src.text(w.file, o))
				}
			}
			w.change(opOperand, e, strings.Join(rest, " "+e.Op.String()+" "))
		}
	}
}

// inChain reports whether e is an operand of the same operator.
func (w *walk) inChain(e *ast.BinaryExpr) bool {
	p, ok := w.parent().(*ast.BinaryExpr)
	return ok && p.Op == e.Op
}

// chain returns the operands of a && b && c.
func chain(e ast.Expr, op token.Token) []ast.Expr {
	if b, ok := e.(*ast.BinaryExpr); ok && b.Op == op {
		return append(chain(b.X, op), chain(b.Y, op)...)
	}
	return []ast.Expr{e}
}

func isNumber(t types.Type) bool {
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Info()&types.IsNumeric != 0
}

// constant changes constant expressions as a whole: true and false, and integers but those of a type of
// ours, which are the names of kinds.
func (w *walk) constant(e ast.Expr) {
	v := w.pkg.info.Types[e]
	if v.Value == nil || w.named(e) || w.inConstant() {
		return
	}
	switch text := w.src.text(w.file, e); {
	case v.Value.Kind() == constant.Bool && (text == "true" || text == "false"):
		w.change(opConstant, e, map[string]string{"true": "false", "false": "true"}[text])
	case v.Value.Kind() == constant.Int:
		if _, own := v.Type.(*types.Named); own && !isLiteral(e) {
			return
		}
		w.change(opConstant, e, "("+text+" + 1)")
	}
}

// inConstant reports whether the expression that is looked at is part of a constant expression.
func (w *walk) inConstant() bool {
	e, ok := w.parent().(ast.Expr)
	return ok && w.pkg.info.Types[e].Value != nil
}

// named reports whether e is the name after a dot, a label or a key: the whole of which it is a part is
// changed, or nothing.
func (w *walk) named(e ast.Expr) bool {
	switch p := w.parent().(type) {
	case *ast.SelectorExpr:
		return p.Sel == e
	case *ast.KeyValueExpr:
		return p.Key == e
	}
	return false
}

func isLiteral(e ast.Expr) bool {
	_, ok := e.(*ast.BasicLit)
	return ok
}
