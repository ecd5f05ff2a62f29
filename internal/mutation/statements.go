package mutation

import (
	"go/ast"
	"go/token"
	"go/types"
)

// statement changes a statement of a list, and the results of a return.
func (w *walk) statement(n ast.Stmt) {
	if !w.inList(n) {
		return
	}
	switch n := n.(type) {
	case *ast.ExprStmt, *ast.SendStmt, *ast.DeferStmt, *ast.GoStmt:
		w.leaveOut(opStatement, n)
	case *ast.AssignStmt:
		w.assignment(n)
	case *ast.IncDecStmt:
		w.leaveOut(opStatement, n)
		to := map[token.Token]string{token.INC: "--", token.DEC: "++"}[n.Tok]
		w.replace(opSign, n, w.src.text(w.file, n.X)+to)
	case *ast.BranchStmt:
		if n.Tok == token.BREAK || n.Tok == token.CONTINUE {
			w.leaveOut(opExit, n)
		}
	case *ast.ReturnStmt:
		if w.early() {
			w.leaveOut(opExit, n)
		}
		w.results(n)
	case *ast.IfStmt:
		w.body(n)
	}
}

// inList reports whether a statement is one of a list: not the start or the step of a for.
func (w *walk) inList(n ast.Stmt) bool {
	switch p := w.parent().(type) {
	case *ast.BlockStmt, *ast.CaseClause:
		return true
	case *ast.CommClause:
		return p.Comm != n
	}
	return false
}

func (w *walk) assignment(n *ast.AssignStmt) {
	if n.Tok == token.DEFINE || isBlank(n) {
		return
	}
	w.leaveOut(opStatement, n)
	to := map[token.Token]string{token.ADD_ASSIGN: " -= ", token.SUB_ASSIGN: " += "}[n.Tok]
	if to != "" && isNumber(w.pkg.info.TypeOf(n.Lhs[0])) {
		w.replace(opSign, n, w.src.text(w.file, n.Lhs[0])+to+w.src.text(w.file, n.Rhs[0]))
	}
}

// isBlank reports whether an assignment has no effect but that of its right side being evaluated: _ = x.
func isBlank(n *ast.AssignStmt) bool {
	for _, l := range n.Lhs {
		if !isName(l, "_") {
			return false
		}
	}
	for _, r := range n.Rhs {
		if _, ok := r.(*ast.CallExpr); ok {
			return false
		}
	}
	return true
}

func (w *walk) leaveOut(operator string, n ast.Stmt) { w.replace(operator, n, "") }

func (w *walk) replace(operator string, n ast.Stmt, is string) {
	lo, hi := w.src.span(n)
	w.file.addMutant(placeStatement, lo, hi, "", w.newMutant(operator, n, is), is)
}

// body leaves out the body of an if. A body of one statement that is left out by itself is the same mutant.
func (w *walk) body(n *ast.IfStmt) {
	if len(n.Body.List) < 2 || w.ends(n.Body) && !w.earlyIn(n) {
		return
	}
	lo, hi := w.src.span(n.Body)
	m := w.newMutant(opBody, n, "")
	m.Was = shorten("if " + w.src.text(w.file, n.Cond) + " { ... }")
	w.file.addMutant(placeBody, lo+1, hi-1, "", m, "")
}

// ends reports whether a block ends with a return.
func (w *walk) ends(b *ast.BlockStmt) bool {
	_, ok := b.List[len(b.List)-1].(*ast.ReturnStmt)
	return ok
}

// early reports whether a function still ends with a return when this return is left out.
func (w *walk) early() bool {
	for i := len(w.parents) - 1; i >= 0; i-- {
		switch p := w.parents[i].(type) {
		case *ast.FuncDecl:
			return w.notLast(p.Body, i)
		case *ast.FuncLit:
			return w.notLast(p.Body, i)
		case *ast.IfStmt:
			if p.Else == nil {
				return true
			}
		case *ast.ForStmt, *ast.RangeStmt:
			return true
		}
	}
	return false
}

// earlyIn is early for what is in the body of n, which is looked at.
func (w *walk) earlyIn(n *ast.IfStmt) bool {
	if n.Else == nil {
		return true
	}
	w.parents = append(w.parents, n)
	defer func() { w.parents = w.parents[:len(w.parents)-1] }()
	return w.early()
}

// notLast reports whether the statement of the body that is looked at is not its last.
func (w *walk) notLast(body *ast.BlockStmt, function int) bool {
	const belowBody = 2 // the function, its body, the statement
	if function+belowBody >= len(w.parents) {
		return false // the return itself is in the body
	}
	return len(body.List) > 0 && w.parents[function+belowBody] != ast.Node(body.List[len(body.List)-1])
}

// results makes nil of the errors that a return returns.
func (w *walk) results(n *ast.ReturnStmt) {
	signature := w.signature()
	if signature == nil || signature.Results().Len() != len(n.Results) {
		return
	}
	for i, e := range n.Results {
		t := signature.Results().At(i).Type()
		if types.TypeString(t, nil) != "error" || isName(e, "nil") {
			continue
		}
		lo, hi := w.src.span(e)
		w.file.addMutant(placeExpression, lo, hi, "error", w.newMutant(opNilError, e, "nil"), "nil")
	}
}

// signature returns the type of the function that is walked over.
func (w *walk) signature() *types.Signature {
	for i := len(w.parents) - 1; i >= 0; i-- {
		switch p := w.parents[i].(type) {
		case *ast.FuncDecl:
			s, _ := w.pkg.info.Defs[p.Name].Type().(*types.Signature)
			return s
		case *ast.FuncLit:
			s, _ := w.pkg.info.TypeOf(p).(*types.Signature)
			return s
		}
	}
	return nil
}
