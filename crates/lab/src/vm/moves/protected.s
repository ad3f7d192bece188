# Firmware that moves memory in every way, in 32-bit code: sends the nanoseconds of the first move and of all, a checksum of the memory, and a register,
# and ends the VM. protected.bin is made from it by
#   as --32 protected.s -o protected.o && ld -m elf_i386 --oformat binary -Ttext 0 -o protected.bin protected.o
.code16
start:
 cli
 xorw %ax,%ax
 lgdtl %cs:gdtr
 movl %cr0,%eax
 orb $1,%al
 movl %eax,%cr0
 ljmpl $8,$0xf0000+protected
.code32
protected:
 movw $16,%ax
 movw %ax,%ds
 movw %ax,%es
 movw %ax,%ss
 movl $0x300000,%esp
 movl $2000000,%ecx
1: decl %ecx
 jnz 1b
# pattern at 4 MiB
 movl $0x400000,%edi
 movl $65536,%ecx
2: imull $0x9e3779b1,%ecx,%eax
 shrl $24,%eax
 movb %al,(%edi)
 incl %edi
 decl %ecx
 jnz 2b
 movl $0xa00000,%ebp
 rdtsc
 movl %eax,%ebx
# copies by bytes, not aligned, over several pages
 movl $0x400003,%esi
 movl $0x800ff1,%edi
 movl $20000,%ecx
 rep movsb
 rdtsc
 subl %ebx,%eax
 call put
# doublewords that cross pages
 movl $0x400001,%esi
 movl $0x80a003,%edi
 movl $3000,%ecx
 rep movsl
# one that reads what it wrote
 movl $0x80f000,%esi
 movl $0x80f003,%edi
 movl $9000,%ecx
 movl $0x00ddccbb,(%esi)
 rep movsb
# backwards
 std
 movl $0x403fff,%esi
 movl $0x8163fe,%edi
 movl $5000,%ecx
 rep movsb
 cld
# filled with bytes, words and doublewords
 movl $0x11223344,%eax
 movl $0x818001,%edi
 movl $6000,%ecx
 rep stosl
 movl $0x81f001,%edi
 movl $6000,%ecx
 rep stosw
 movl $0x823001,%edi
 movl $6000,%ecx
 rep stosb
# 64 KiB within themselves, towards lower addresses
 movl $0x800010,%esi
 movl $0x800000,%edi
 movl $65536,%ecx
 rep movsb
 rdtsc
 subl %ebx,%eax
 call put
# what became of it
 movl $0x800000,%esi
 movl $0x28000,%ecx
 xorl %eax,%eax
3: roll $5,%eax
 xorb (%esi),%al
 incl %esi
 decl %ecx
 jnz 3b
 call put
 movl %edi,%eax
 call put
 movb $1,%al
 movw $0xf4,%dx
 outb %al,%dx
 hlt
put:
 movw $0xe9,%dx
 movl $4,%ecx
4: outb %al,%dx
 shrl $8,%eax
 loop 4b
 ret
.align 8
gdt: .quad 0
 .quad 0x00cf9a000000ffff
 .quad 0x00cf92000000ffff
gdtr: .word 23
 .long 0xf0000+gdt
