/* SPDX-License-Identifier: Apache-2.0 */
/*
 * void context_swap(void **leave, void *enter): push what a function must preserve, store the stack pointer in *leave, take @enter as the new one, pop.
 * A stack that was left holds a frame of CONTEXT_FRAME words (context.c writes the first one by hand). Shadow stacks are not followed: a program that
 * links this is not marked for them, so none is in use.
 */
#if defined(__x86_64__)

	.text
	.globl	context_swap
	.hidden	context_swap
	.type	context_swap, @function
context_swap:
	.cfi_startproc
	endbr64
	pushq	%rbp
	pushq	%rbx
	pushq	%r12
	pushq	%r13
	pushq	%r14
	pushq	%r15
	subq	$8, %rsp
	.cfi_def_cfa_offset 64
	.cfi_offset %rbp, -16
	.cfi_offset %rbx, -24
	.cfi_offset %r12, -32
	.cfi_offset %r13, -40
	.cfi_offset %r14, -48
	.cfi_offset %r15, -56
	stmxcsr	(%rsp)
	fnstcw	4(%rsp)
	movq	%rsp, (%rdi)
	movq	%rsi, %rsp
	ldmxcsr	(%rsp)
	fldcw	4(%rsp)
	addq	$8, %rsp
	popq	%r15
	popq	%r14
	popq	%r13
	popq	%r12
	popq	%rbx
	popq	%rbp
	.cfi_def_cfa_offset 8
	.cfi_restore %rbp
	.cfi_restore %rbx
	.cfi_restore %r12
	.cfi_restore %r13
	.cfi_restore %r14
	.cfi_restore %r15
	ret
	.cfi_endproc
	.size	context_swap, . - context_swap

/* indirect branches may land here (IBT); nothing is said of shadow stacks */
	.section .note.gnu.property, "a"
	.p2align 3
	.long	4, 16, 5
	.asciz	"GNU"
	.long	0xc0000002, 4, 1, 0

#elif defined(__aarch64__)

	.text
	.globl	context_swap
	.hidden	context_swap
	.type	context_swap, %function
context_swap:
	.cfi_startproc
	hint	#34 /* bti c */
	sub	sp, sp, #176
	.cfi_def_cfa_offset 176
	stp	x29, x30, [sp]
	stp	x19, x20, [sp, #16]
	stp	x21, x22, [sp, #32]
	stp	x23, x24, [sp, #48]
	stp	x25, x26, [sp, #64]
	stp	x27, x28, [sp, #80]
	.cfi_offset x29, -176
	.cfi_offset x30, -168
	stp	d8, d9, [sp, #96]
	stp	d10, d11, [sp, #112]
	stp	d12, d13, [sp, #128]
	stp	d14, d15, [sp, #144]
	mrs	x9, fpcr
	str	x9, [sp, #160]
	mov	x9, sp
	str	x9, [x0]
	mov	sp, x1
	ldr	x9, [sp, #160]
	msr	fpcr, x9
	ldp	d14, d15, [sp, #144]
	ldp	d12, d13, [sp, #128]
	ldp	d10, d11, [sp, #112]
	ldp	d8, d9, [sp, #96]
	ldp	x27, x28, [sp, #80]
	ldp	x25, x26, [sp, #64]
	ldp	x23, x24, [sp, #48]
	ldp	x21, x22, [sp, #32]
	ldp	x19, x20, [sp, #16]
	ldp	x29, x30, [sp]
	add	sp, sp, #176
	.cfi_def_cfa_offset 0
	.cfi_restore x29
	.cfi_restore x30
	ret
	.cfi_endproc
	.size	context_swap, . - context_swap

#endif

	.section .note.GNU-stack, "", %progbits
