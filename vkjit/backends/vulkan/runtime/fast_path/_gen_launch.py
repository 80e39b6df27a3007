"""The short way of a launch; written by `generate`, which explains it. Do not edit."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vkjit.runtime.array import DeviceArray

if TYPE_CHECKING:
    from .fast_path import CallShape

__all__ = ["MAKERS"]


def _with_1(shape: CallShape) -> Callable[[tuple[Any, ...]], bool]:
    i0, = shape.arrays
    w0, = shape.written
    names, more, blocks, look_up, overlap = shape.names, shape.more, shape.blocks, shape.entries.get, shape.overlap
    others, kinds, told, missing = shape.others, shape.kinds, shape.told, shape.missing

    def launch(args: tuple[Any, ...]) -> bool:
        for namespace, name, value in names:
            if namespace.get(name, missing) is not value:
                return False
        if blocks:
            return False
        try:
            if more is not None and not more():
                return False
            a0 = args[i0].__vkjit_array__
            b0 = a0.buffer
            words = a0.descriptor
            key: tuple[Any, ...] = (b0.device, a0.spec_class)
            if others is not None:
                rest = others(args)
                key += kinds(rest)
                words += rest
            entry = look_up(key)
        except (AttributeError, TypeError, ValueError):  # no array, a constant that can't be a key, an emptied name
            return False
        if entry is None:
            return False
        (
            current, owner, kernel, constants, left, right, mixed, pick, over, wide, most, grid, deep, x, pack, place,
            memory, addresses, block, fresh, claim,
        ) = entry
        if fresh is not None and not fresh():
            return False
        if constants:
            words += constants
        if left is not None and left(words) != right(words):
            return False
        if over is not None:
            x = -(-words[over] // wide)
            if not 0 < x <= most:
                return False
            if deep is not None:
                row, high, most_rows = deep
                y, z = -(-words[row] // high), 1
                if not 0 < y <= most_rows:
                    return False
        elif grid is not None:
            size = grid(words)
            if size is None:
                return False
            x, y, z = size
        queue = current.queue
        lock = queue.lock
        try:
            lock.acquire()
            if claim is not None:
                words += (claim(),)
            command = queue.command_handle or queue.open_command_handle()
            if not command:
                return False
            epoch = queue.epoch
            if b0.queue is not queue or (w0 and b0.readers is not None):
                return False
            if b0.write_epoch == epoch or (w0 and b0.read_epoch == epoch):
                if queue.transferred:
                    queue.order()
                    flags, epoch = 0, queue.epoch
                else:
                    flags, epoch = 2, next(queue.group.epochs)
            else:
                flags = 0
            if queue.bound is not kernel:
                flags += 1
            try:
                if place:
                    pack(memory, place, command, x, *pick(words))
                else:
                    pack(memory, 32, y, z, command, x, *pick(words))
            except (struct.error, OverflowError):  # a number that doesn't fit; the long way says which
                return False
            serial = queue.serial
            if w0:
                b0.write_epoch, b0.last_use, b0.last_write = epoch, serial, serial
            else:
                b0.read_epoch, b0.last_use = epoch, serial
            queue.epoch = epoch
            call = owner.call
            if call is None:
                queue.emit(kernel, flags, memory, block)
            else:
                call(addresses[flags])
            if flags & 1:
                queue.bound = kernel
                kernel.last_use, kernel.user = serial, queue
            recorded = queue.recorded = queue.recorded + 1
            if recorded >= queue.budget:
                queue.full()
                owner.submitted()
        except BaseException:
            try:
                queue.mark_dirty()
            except KeyboardInterrupt:  # another one
                queue.mark_dirty()
            raise
        finally:
            lock.release()
        for position in told:
            if args[position].__class__ is not DeviceArray:
                args[position].__vkjit_written__()
        return True

    return launch


def _with_2(shape: CallShape) -> Callable[[tuple[Any, ...]], bool]:
    i0, i1 = shape.arrays
    w0, w1 = shape.written
    names, more, blocks, look_up, overlap = shape.names, shape.more, shape.blocks, shape.entries.get, shape.overlap
    others, kinds, told, missing = shape.others, shape.kinds, shape.told, shape.missing

    def launch(args: tuple[Any, ...]) -> bool:
        for namespace, name, value in names:
            if namespace.get(name, missing) is not value:
                return False
        if blocks:
            return False
        try:
            if more is not None and not more():
                return False
            a0, a1 = args[i0].__vkjit_array__, args[i1].__vkjit_array__
            b0, b1 = a0.buffer, a1.buffer
            words = a0.descriptor + a1.descriptor
            key: tuple[Any, ...] = (b0.device, a0.spec_class, a1.spec_class)
            if b0 is b1:
                key += overlap((a0, a1))
            if others is not None:
                rest = others(args)
                key += kinds(rest)
                words += rest
            entry = look_up(key)
        except (AttributeError, TypeError, ValueError):  # no array, a constant that can't be a key, an emptied name
            return False
        if entry is None:
            return False
        (
            current, owner, kernel, constants, left, right, mixed, pick, over, wide, most, grid, deep, x, pack, place,
            memory, addresses, block, fresh, claim,
        ) = entry
        if fresh is not None and not fresh():
            return False
        if constants:
            words += constants
        if left is not None and (mixed or a0.shape is not a1.shape) and left(words) != right(words):
            return False
        if over is not None:
            x = -(-words[over] // wide)
            if not 0 < x <= most:
                return False
            if deep is not None:
                row, high, most_rows = deep
                y, z = -(-words[row] // high), 1
                if not 0 < y <= most_rows:
                    return False
        elif grid is not None:
            size = grid(words)
            if size is None:
                return False
            x, y, z = size
        queue = current.queue
        lock = queue.lock
        try:
            lock.acquire()
            if claim is not None:
                words += (claim(),)
            command = queue.command_handle or queue.open_command_handle()
            if not command:
                return False
            epoch = queue.epoch
            if b0.queue is not queue or (w0 and b0.readers is not None) or b1.queue is not queue or (w1 and b1.readers is not None):
                return False
            if b0.write_epoch == epoch or (w0 and b0.read_epoch == epoch) or b1.write_epoch == epoch or (w1 and b1.read_epoch == epoch):
                if queue.transferred:
                    queue.order()
                    flags, epoch = 0, queue.epoch
                else:
                    flags, epoch = 2, next(queue.group.epochs)
            else:
                flags = 0
            if queue.bound is not kernel:
                flags += 1
            try:
                if place:
                    pack(memory, place, command, x, *pick(words))
                else:
                    pack(memory, 32, y, z, command, x, *pick(words))
            except (struct.error, OverflowError):  # a number that doesn't fit; the long way says which
                return False
            serial = queue.serial
            if w0:
                b0.write_epoch, b0.last_use, b0.last_write = epoch, serial, serial
            else:
                b0.read_epoch, b0.last_use = epoch, serial
            if w1:
                b1.write_epoch, b1.last_use, b1.last_write = epoch, serial, serial
            else:
                b1.read_epoch, b1.last_use = epoch, serial
            queue.epoch = epoch
            call = owner.call
            if call is None:
                queue.emit(kernel, flags, memory, block)
            else:
                call(addresses[flags])
            if flags & 1:
                queue.bound = kernel
                kernel.last_use, kernel.user = serial, queue
            recorded = queue.recorded = queue.recorded + 1
            if recorded >= queue.budget:
                queue.full()
                owner.submitted()
        except BaseException:
            try:
                queue.mark_dirty()
            except KeyboardInterrupt:  # another one
                queue.mark_dirty()
            raise
        finally:
            lock.release()
        for position in told:
            if args[position].__class__ is not DeviceArray:
                args[position].__vkjit_written__()
        return True

    return launch


def _with_3(shape: CallShape) -> Callable[[tuple[Any, ...]], bool]:
    i0, i1, i2 = shape.arrays
    w0, w1, w2 = shape.written
    names, more, blocks, look_up, overlap = shape.names, shape.more, shape.blocks, shape.entries.get, shape.overlap
    others, kinds, told, missing = shape.others, shape.kinds, shape.told, shape.missing

    def launch(args: tuple[Any, ...]) -> bool:
        for namespace, name, value in names:
            if namespace.get(name, missing) is not value:
                return False
        if blocks:
            return False
        try:
            if more is not None and not more():
                return False
            a0, a1, a2 = args[i0].__vkjit_array__, args[i1].__vkjit_array__, args[i2].__vkjit_array__
            b0, b1, b2 = a0.buffer, a1.buffer, a2.buffer
            words = a0.descriptor + a1.descriptor + a2.descriptor
            key: tuple[Any, ...] = (b0.device, a0.spec_class, a1.spec_class, a2.spec_class)
            if b0 is b1 or b0 is b2 or b1 is b2:
                key += overlap((a0, a1, a2))
            if others is not None:
                rest = others(args)
                key += kinds(rest)
                words += rest
            entry = look_up(key)
        except (AttributeError, TypeError, ValueError):  # no array, a constant that can't be a key, an emptied name
            return False
        if entry is None:
            return False
        (
            current, owner, kernel, constants, left, right, mixed, pick, over, wide, most, grid, deep, x, pack, place,
            memory, addresses, block, fresh, claim,
        ) = entry
        if fresh is not None and not fresh():
            return False
        if constants:
            words += constants
        if left is not None and (mixed or a0.shape is not a1.shape or a0.shape is not a2.shape) and left(words) != right(words):
            return False
        if over is not None:
            x = -(-words[over] // wide)
            if not 0 < x <= most:
                return False
            if deep is not None:
                row, high, most_rows = deep
                y, z = -(-words[row] // high), 1
                if not 0 < y <= most_rows:
                    return False
        elif grid is not None:
            size = grid(words)
            if size is None:
                return False
            x, y, z = size
        queue = current.queue
        lock = queue.lock
        try:
            lock.acquire()
            if claim is not None:
                words += (claim(),)
            command = queue.command_handle or queue.open_command_handle()
            if not command:
                return False
            epoch = queue.epoch
            if b0.queue is not queue or (w0 and b0.readers is not None) or b1.queue is not queue or (w1 and b1.readers is not None) or b2.queue is not queue or (w2 and b2.readers is not None):
                return False
            if b0.write_epoch == epoch or (w0 and b0.read_epoch == epoch) or b1.write_epoch == epoch or (w1 and b1.read_epoch == epoch) or b2.write_epoch == epoch or (w2 and b2.read_epoch == epoch):
                if queue.transferred:
                    queue.order()
                    flags, epoch = 0, queue.epoch
                else:
                    flags, epoch = 2, next(queue.group.epochs)
            else:
                flags = 0
            if queue.bound is not kernel:
                flags += 1
            try:
                if place:
                    pack(memory, place, command, x, *pick(words))
                else:
                    pack(memory, 32, y, z, command, x, *pick(words))
            except (struct.error, OverflowError):  # a number that doesn't fit; the long way says which
                return False
            serial = queue.serial
            if w0:
                b0.write_epoch, b0.last_use, b0.last_write = epoch, serial, serial
            else:
                b0.read_epoch, b0.last_use = epoch, serial
            if w1:
                b1.write_epoch, b1.last_use, b1.last_write = epoch, serial, serial
            else:
                b1.read_epoch, b1.last_use = epoch, serial
            if w2:
                b2.write_epoch, b2.last_use, b2.last_write = epoch, serial, serial
            else:
                b2.read_epoch, b2.last_use = epoch, serial
            queue.epoch = epoch
            call = owner.call
            if call is None:
                queue.emit(kernel, flags, memory, block)
            else:
                call(addresses[flags])
            if flags & 1:
                queue.bound = kernel
                kernel.last_use, kernel.user = serial, queue
            recorded = queue.recorded = queue.recorded + 1
            if recorded >= queue.budget:
                queue.full()
                owner.submitted()
        except BaseException:
            try:
                queue.mark_dirty()
            except KeyboardInterrupt:  # another one
                queue.mark_dirty()
            raise
        finally:
            lock.release()
        for position in told:
            if args[position].__class__ is not DeviceArray:
                args[position].__vkjit_written__()
        return True

    return launch


def _with_4(shape: CallShape) -> Callable[[tuple[Any, ...]], bool]:
    i0, i1, i2, i3 = shape.arrays
    w0, w1, w2, w3 = shape.written
    names, more, blocks, look_up, overlap = shape.names, shape.more, shape.blocks, shape.entries.get, shape.overlap
    others, kinds, told, missing = shape.others, shape.kinds, shape.told, shape.missing

    def launch(args: tuple[Any, ...]) -> bool:
        for namespace, name, value in names:
            if namespace.get(name, missing) is not value:
                return False
        if blocks:
            return False
        try:
            if more is not None and not more():
                return False
            a0, a1, a2, a3 = args[i0].__vkjit_array__, args[i1].__vkjit_array__, args[i2].__vkjit_array__, args[i3].__vkjit_array__
            b0, b1, b2, b3 = a0.buffer, a1.buffer, a2.buffer, a3.buffer
            words = a0.descriptor + a1.descriptor + a2.descriptor + a3.descriptor
            key: tuple[Any, ...] = (b0.device, a0.spec_class, a1.spec_class, a2.spec_class, a3.spec_class)
            if b0 is b1 or b0 is b2 or b0 is b3 or b1 is b2 or b1 is b3 or b2 is b3:
                key += overlap((a0, a1, a2, a3))
            if others is not None:
                rest = others(args)
                key += kinds(rest)
                words += rest
            entry = look_up(key)
        except (AttributeError, TypeError, ValueError):  # no array, a constant that can't be a key, an emptied name
            return False
        if entry is None:
            return False
        (
            current, owner, kernel, constants, left, right, mixed, pick, over, wide, most, grid, deep, x, pack, place,
            memory, addresses, block, fresh, claim,
        ) = entry
        if fresh is not None and not fresh():
            return False
        if constants:
            words += constants
        if left is not None and (mixed or a0.shape is not a1.shape or a0.shape is not a2.shape or a0.shape is not a3.shape) and left(words) != right(words):
            return False
        if over is not None:
            x = -(-words[over] // wide)
            if not 0 < x <= most:
                return False
            if deep is not None:
                row, high, most_rows = deep
                y, z = -(-words[row] // high), 1
                if not 0 < y <= most_rows:
                    return False
        elif grid is not None:
            size = grid(words)
            if size is None:
                return False
            x, y, z = size
        queue = current.queue
        lock = queue.lock
        try:
            lock.acquire()
            if claim is not None:
                words += (claim(),)
            command = queue.command_handle or queue.open_command_handle()
            if not command:
                return False
            epoch = queue.epoch
            if b0.queue is not queue or (w0 and b0.readers is not None) or b1.queue is not queue or (w1 and b1.readers is not None) or b2.queue is not queue or (w2 and b2.readers is not None) or b3.queue is not queue or (w3 and b3.readers is not None):
                return False
            if b0.write_epoch == epoch or (w0 and b0.read_epoch == epoch) or b1.write_epoch == epoch or (w1 and b1.read_epoch == epoch) or b2.write_epoch == epoch or (w2 and b2.read_epoch == epoch) or b3.write_epoch == epoch or (w3 and b3.read_epoch == epoch):
                if queue.transferred:
                    queue.order()
                    flags, epoch = 0, queue.epoch
                else:
                    flags, epoch = 2, next(queue.group.epochs)
            else:
                flags = 0
            if queue.bound is not kernel:
                flags += 1
            try:
                if place:
                    pack(memory, place, command, x, *pick(words))
                else:
                    pack(memory, 32, y, z, command, x, *pick(words))
            except (struct.error, OverflowError):  # a number that doesn't fit; the long way says which
                return False
            serial = queue.serial
            if w0:
                b0.write_epoch, b0.last_use, b0.last_write = epoch, serial, serial
            else:
                b0.read_epoch, b0.last_use = epoch, serial
            if w1:
                b1.write_epoch, b1.last_use, b1.last_write = epoch, serial, serial
            else:
                b1.read_epoch, b1.last_use = epoch, serial
            if w2:
                b2.write_epoch, b2.last_use, b2.last_write = epoch, serial, serial
            else:
                b2.read_epoch, b2.last_use = epoch, serial
            if w3:
                b3.write_epoch, b3.last_use, b3.last_write = epoch, serial, serial
            else:
                b3.read_epoch, b3.last_use = epoch, serial
            queue.epoch = epoch
            call = owner.call
            if call is None:
                queue.emit(kernel, flags, memory, block)
            else:
                call(addresses[flags])
            if flags & 1:
                queue.bound = kernel
                kernel.last_use, kernel.user = serial, queue
            recorded = queue.recorded = queue.recorded + 1
            if recorded >= queue.budget:
                queue.full()
                owner.submitted()
        except BaseException:
            try:
                queue.mark_dirty()
            except KeyboardInterrupt:  # another one
                queue.mark_dirty()
            raise
        finally:
            lock.release()
        for position in told:
            if args[position].__class__ is not DeviceArray:
                args[position].__vkjit_written__()
        return True

    return launch


def _with_5(shape: CallShape) -> Callable[[tuple[Any, ...]], bool]:
    i0, i1, i2, i3, i4 = shape.arrays
    w0, w1, w2, w3, w4 = shape.written
    names, more, blocks, look_up, overlap = shape.names, shape.more, shape.blocks, shape.entries.get, shape.overlap
    others, kinds, told, missing = shape.others, shape.kinds, shape.told, shape.missing

    def launch(args: tuple[Any, ...]) -> bool:
        for namespace, name, value in names:
            if namespace.get(name, missing) is not value:
                return False
        if blocks:
            return False
        try:
            if more is not None and not more():
                return False
            a0, a1, a2, a3, a4 = args[i0].__vkjit_array__, args[i1].__vkjit_array__, args[i2].__vkjit_array__, args[i3].__vkjit_array__, args[i4].__vkjit_array__
            b0, b1, b2, b3, b4 = a0.buffer, a1.buffer, a2.buffer, a3.buffer, a4.buffer
            words = a0.descriptor + a1.descriptor + a2.descriptor + a3.descriptor + a4.descriptor
            key: tuple[Any, ...] = (b0.device, a0.spec_class, a1.spec_class, a2.spec_class, a3.spec_class, a4.spec_class)
            if b0 is b1 or b0 is b2 or b0 is b3 or b0 is b4 or b1 is b2 or b1 is b3 or b1 is b4 or b2 is b3 or b2 is b4 or b3 is b4:
                key += overlap((a0, a1, a2, a3, a4))
            if others is not None:
                rest = others(args)
                key += kinds(rest)
                words += rest
            entry = look_up(key)
        except (AttributeError, TypeError, ValueError):  # no array, a constant that can't be a key, an emptied name
            return False
        if entry is None:
            return False
        (
            current, owner, kernel, constants, left, right, mixed, pick, over, wide, most, grid, deep, x, pack, place,
            memory, addresses, block, fresh, claim,
        ) = entry
        if fresh is not None and not fresh():
            return False
        if constants:
            words += constants
        if left is not None and (mixed or a0.shape is not a1.shape or a0.shape is not a2.shape or a0.shape is not a3.shape or a0.shape is not a4.shape) and left(words) != right(words):
            return False
        if over is not None:
            x = -(-words[over] // wide)
            if not 0 < x <= most:
                return False
            if deep is not None:
                row, high, most_rows = deep
                y, z = -(-words[row] // high), 1
                if not 0 < y <= most_rows:
                    return False
        elif grid is not None:
            size = grid(words)
            if size is None:
                return False
            x, y, z = size
        queue = current.queue
        lock = queue.lock
        try:
            lock.acquire()
            if claim is not None:
                words += (claim(),)
            command = queue.command_handle or queue.open_command_handle()
            if not command:
                return False
            epoch = queue.epoch
            if b0.queue is not queue or (w0 and b0.readers is not None) or b1.queue is not queue or (w1 and b1.readers is not None) or b2.queue is not queue or (w2 and b2.readers is not None) or b3.queue is not queue or (w3 and b3.readers is not None) or b4.queue is not queue or (w4 and b4.readers is not None):
                return False
            if b0.write_epoch == epoch or (w0 and b0.read_epoch == epoch) or b1.write_epoch == epoch or (w1 and b1.read_epoch == epoch) or b2.write_epoch == epoch or (w2 and b2.read_epoch == epoch) or b3.write_epoch == epoch or (w3 and b3.read_epoch == epoch) or b4.write_epoch == epoch or (w4 and b4.read_epoch == epoch):
                if queue.transferred:
                    queue.order()
                    flags, epoch = 0, queue.epoch
                else:
                    flags, epoch = 2, next(queue.group.epochs)
            else:
                flags = 0
            if queue.bound is not kernel:
                flags += 1
            try:
                if place:
                    pack(memory, place, command, x, *pick(words))
                else:
                    pack(memory, 32, y, z, command, x, *pick(words))
            except (struct.error, OverflowError):  # a number that doesn't fit; the long way says which
                return False
            serial = queue.serial
            if w0:
                b0.write_epoch, b0.last_use, b0.last_write = epoch, serial, serial
            else:
                b0.read_epoch, b0.last_use = epoch, serial
            if w1:
                b1.write_epoch, b1.last_use, b1.last_write = epoch, serial, serial
            else:
                b1.read_epoch, b1.last_use = epoch, serial
            if w2:
                b2.write_epoch, b2.last_use, b2.last_write = epoch, serial, serial
            else:
                b2.read_epoch, b2.last_use = epoch, serial
            if w3:
                b3.write_epoch, b3.last_use, b3.last_write = epoch, serial, serial
            else:
                b3.read_epoch, b3.last_use = epoch, serial
            if w4:
                b4.write_epoch, b4.last_use, b4.last_write = epoch, serial, serial
            else:
                b4.read_epoch, b4.last_use = epoch, serial
            queue.epoch = epoch
            call = owner.call
            if call is None:
                queue.emit(kernel, flags, memory, block)
            else:
                call(addresses[flags])
            if flags & 1:
                queue.bound = kernel
                kernel.last_use, kernel.user = serial, queue
            recorded = queue.recorded = queue.recorded + 1
            if recorded >= queue.budget:
                queue.full()
                owner.submitted()
        except BaseException:
            try:
                queue.mark_dirty()
            except KeyboardInterrupt:  # another one
                queue.mark_dirty()
            raise
        finally:
            lock.release()
        for position in told:
            if args[position].__class__ is not DeviceArray:
                args[position].__vkjit_written__()
        return True

    return launch


def _with_6(shape: CallShape) -> Callable[[tuple[Any, ...]], bool]:
    i0, i1, i2, i3, i4, i5 = shape.arrays
    w0, w1, w2, w3, w4, w5 = shape.written
    names, more, blocks, look_up, overlap = shape.names, shape.more, shape.blocks, shape.entries.get, shape.overlap
    others, kinds, told, missing = shape.others, shape.kinds, shape.told, shape.missing

    def launch(args: tuple[Any, ...]) -> bool:
        for namespace, name, value in names:
            if namespace.get(name, missing) is not value:
                return False
        if blocks:
            return False
        try:
            if more is not None and not more():
                return False
            a0, a1, a2, a3, a4, a5 = args[i0].__vkjit_array__, args[i1].__vkjit_array__, args[i2].__vkjit_array__, args[i3].__vkjit_array__, args[i4].__vkjit_array__, args[i5].__vkjit_array__
            b0, b1, b2, b3, b4, b5 = a0.buffer, a1.buffer, a2.buffer, a3.buffer, a4.buffer, a5.buffer
            words = a0.descriptor + a1.descriptor + a2.descriptor + a3.descriptor + a4.descriptor + a5.descriptor
            key: tuple[Any, ...] = (b0.device, a0.spec_class, a1.spec_class, a2.spec_class, a3.spec_class, a4.spec_class, a5.spec_class)
            if b0 is b1 or b0 is b2 or b0 is b3 or b0 is b4 or b0 is b5 or b1 is b2 or b1 is b3 or b1 is b4 or b1 is b5 or b2 is b3 or b2 is b4 or b2 is b5 or b3 is b4 or b3 is b5 or b4 is b5:
                key += overlap((a0, a1, a2, a3, a4, a5))
            if others is not None:
                rest = others(args)
                key += kinds(rest)
                words += rest
            entry = look_up(key)
        except (AttributeError, TypeError, ValueError):  # no array, a constant that can't be a key, an emptied name
            return False
        if entry is None:
            return False
        (
            current, owner, kernel, constants, left, right, mixed, pick, over, wide, most, grid, deep, x, pack, place,
            memory, addresses, block, fresh, claim,
        ) = entry
        if fresh is not None and not fresh():
            return False
        if constants:
            words += constants
        if left is not None and (mixed or a0.shape is not a1.shape or a0.shape is not a2.shape or a0.shape is not a3.shape or a0.shape is not a4.shape or a0.shape is not a5.shape) and left(words) != right(words):
            return False
        if over is not None:
            x = -(-words[over] // wide)
            if not 0 < x <= most:
                return False
            if deep is not None:
                row, high, most_rows = deep
                y, z = -(-words[row] // high), 1
                if not 0 < y <= most_rows:
                    return False
        elif grid is not None:
            size = grid(words)
            if size is None:
                return False
            x, y, z = size
        queue = current.queue
        lock = queue.lock
        try:
            lock.acquire()
            if claim is not None:
                words += (claim(),)
            command = queue.command_handle or queue.open_command_handle()
            if not command:
                return False
            epoch = queue.epoch
            if b0.queue is not queue or (w0 and b0.readers is not None) or b1.queue is not queue or (w1 and b1.readers is not None) or b2.queue is not queue or (w2 and b2.readers is not None) or b3.queue is not queue or (w3 and b3.readers is not None) or b4.queue is not queue or (w4 and b4.readers is not None) or b5.queue is not queue or (w5 and b5.readers is not None):
                return False
            if b0.write_epoch == epoch or (w0 and b0.read_epoch == epoch) or b1.write_epoch == epoch or (w1 and b1.read_epoch == epoch) or b2.write_epoch == epoch or (w2 and b2.read_epoch == epoch) or b3.write_epoch == epoch or (w3 and b3.read_epoch == epoch) or b4.write_epoch == epoch or (w4 and b4.read_epoch == epoch) or b5.write_epoch == epoch or (w5 and b5.read_epoch == epoch):
                if queue.transferred:
                    queue.order()
                    flags, epoch = 0, queue.epoch
                else:
                    flags, epoch = 2, next(queue.group.epochs)
            else:
                flags = 0
            if queue.bound is not kernel:
                flags += 1
            try:
                if place:
                    pack(memory, place, command, x, *pick(words))
                else:
                    pack(memory, 32, y, z, command, x, *pick(words))
            except (struct.error, OverflowError):  # a number that doesn't fit; the long way says which
                return False
            serial = queue.serial
            if w0:
                b0.write_epoch, b0.last_use, b0.last_write = epoch, serial, serial
            else:
                b0.read_epoch, b0.last_use = epoch, serial
            if w1:
                b1.write_epoch, b1.last_use, b1.last_write = epoch, serial, serial
            else:
                b1.read_epoch, b1.last_use = epoch, serial
            if w2:
                b2.write_epoch, b2.last_use, b2.last_write = epoch, serial, serial
            else:
                b2.read_epoch, b2.last_use = epoch, serial
            if w3:
                b3.write_epoch, b3.last_use, b3.last_write = epoch, serial, serial
            else:
                b3.read_epoch, b3.last_use = epoch, serial
            if w4:
                b4.write_epoch, b4.last_use, b4.last_write = epoch, serial, serial
            else:
                b4.read_epoch, b4.last_use = epoch, serial
            if w5:
                b5.write_epoch, b5.last_use, b5.last_write = epoch, serial, serial
            else:
                b5.read_epoch, b5.last_use = epoch, serial
            queue.epoch = epoch
            call = owner.call
            if call is None:
                queue.emit(kernel, flags, memory, block)
            else:
                call(addresses[flags])
            if flags & 1:
                queue.bound = kernel
                kernel.last_use, kernel.user = serial, queue
            recorded = queue.recorded = queue.recorded + 1
            if recorded >= queue.budget:
                queue.full()
                owner.submitted()
        except BaseException:
            try:
                queue.mark_dirty()
            except KeyboardInterrupt:  # another one
                queue.mark_dirty()
            raise
        finally:
            lock.release()
        for position in told:
            if args[position].__class__ is not DeviceArray:
                args[position].__vkjit_written__()
        return True

    return launch


def _with_7(shape: CallShape) -> Callable[[tuple[Any, ...]], bool]:
    i0, i1, i2, i3, i4, i5, i6 = shape.arrays
    w0, w1, w2, w3, w4, w5, w6 = shape.written
    names, more, blocks, look_up, overlap = shape.names, shape.more, shape.blocks, shape.entries.get, shape.overlap
    others, kinds, told, missing = shape.others, shape.kinds, shape.told, shape.missing

    def launch(args: tuple[Any, ...]) -> bool:
        for namespace, name, value in names:
            if namespace.get(name, missing) is not value:
                return False
        if blocks:
            return False
        try:
            if more is not None and not more():
                return False
            a0, a1, a2, a3, a4, a5, a6 = args[i0].__vkjit_array__, args[i1].__vkjit_array__, args[i2].__vkjit_array__, args[i3].__vkjit_array__, args[i4].__vkjit_array__, args[i5].__vkjit_array__, args[i6].__vkjit_array__
            b0, b1, b2, b3, b4, b5, b6 = a0.buffer, a1.buffer, a2.buffer, a3.buffer, a4.buffer, a5.buffer, a6.buffer
            words = a0.descriptor + a1.descriptor + a2.descriptor + a3.descriptor + a4.descriptor + a5.descriptor + a6.descriptor
            key: tuple[Any, ...] = (b0.device, a0.spec_class, a1.spec_class, a2.spec_class, a3.spec_class, a4.spec_class, a5.spec_class, a6.spec_class)
            if b0 is b1 or b0 is b2 or b0 is b3 or b0 is b4 or b0 is b5 or b0 is b6 or b1 is b2 or b1 is b3 or b1 is b4 or b1 is b5 or b1 is b6 or b2 is b3 or b2 is b4 or b2 is b5 or b2 is b6 or b3 is b4 or b3 is b5 or b3 is b6 or b4 is b5 or b4 is b6 or b5 is b6:
                key += overlap((a0, a1, a2, a3, a4, a5, a6))
            if others is not None:
                rest = others(args)
                key += kinds(rest)
                words += rest
            entry = look_up(key)
        except (AttributeError, TypeError, ValueError):  # no array, a constant that can't be a key, an emptied name
            return False
        if entry is None:
            return False
        (
            current, owner, kernel, constants, left, right, mixed, pick, over, wide, most, grid, deep, x, pack, place,
            memory, addresses, block, fresh, claim,
        ) = entry
        if fresh is not None and not fresh():
            return False
        if constants:
            words += constants
        if left is not None and (mixed or a0.shape is not a1.shape or a0.shape is not a2.shape or a0.shape is not a3.shape or a0.shape is not a4.shape or a0.shape is not a5.shape or a0.shape is not a6.shape) and left(words) != right(words):
            return False
        if over is not None:
            x = -(-words[over] // wide)
            if not 0 < x <= most:
                return False
            if deep is not None:
                row, high, most_rows = deep
                y, z = -(-words[row] // high), 1
                if not 0 < y <= most_rows:
                    return False
        elif grid is not None:
            size = grid(words)
            if size is None:
                return False
            x, y, z = size
        queue = current.queue
        lock = queue.lock
        try:
            lock.acquire()
            if claim is not None:
                words += (claim(),)
            command = queue.command_handle or queue.open_command_handle()
            if not command:
                return False
            epoch = queue.epoch
            if b0.queue is not queue or (w0 and b0.readers is not None) or b1.queue is not queue or (w1 and b1.readers is not None) or b2.queue is not queue or (w2 and b2.readers is not None) or b3.queue is not queue or (w3 and b3.readers is not None) or b4.queue is not queue or (w4 and b4.readers is not None) or b5.queue is not queue or (w5 and b5.readers is not None) or b6.queue is not queue or (w6 and b6.readers is not None):
                return False
            if b0.write_epoch == epoch or (w0 and b0.read_epoch == epoch) or b1.write_epoch == epoch or (w1 and b1.read_epoch == epoch) or b2.write_epoch == epoch or (w2 and b2.read_epoch == epoch) or b3.write_epoch == epoch or (w3 and b3.read_epoch == epoch) or b4.write_epoch == epoch or (w4 and b4.read_epoch == epoch) or b5.write_epoch == epoch or (w5 and b5.read_epoch == epoch) or b6.write_epoch == epoch or (w6 and b6.read_epoch == epoch):
                if queue.transferred:
                    queue.order()
                    flags, epoch = 0, queue.epoch
                else:
                    flags, epoch = 2, next(queue.group.epochs)
            else:
                flags = 0
            if queue.bound is not kernel:
                flags += 1
            try:
                if place:
                    pack(memory, place, command, x, *pick(words))
                else:
                    pack(memory, 32, y, z, command, x, *pick(words))
            except (struct.error, OverflowError):  # a number that doesn't fit; the long way says which
                return False
            serial = queue.serial
            if w0:
                b0.write_epoch, b0.last_use, b0.last_write = epoch, serial, serial
            else:
                b0.read_epoch, b0.last_use = epoch, serial
            if w1:
                b1.write_epoch, b1.last_use, b1.last_write = epoch, serial, serial
            else:
                b1.read_epoch, b1.last_use = epoch, serial
            if w2:
                b2.write_epoch, b2.last_use, b2.last_write = epoch, serial, serial
            else:
                b2.read_epoch, b2.last_use = epoch, serial
            if w3:
                b3.write_epoch, b3.last_use, b3.last_write = epoch, serial, serial
            else:
                b3.read_epoch, b3.last_use = epoch, serial
            if w4:
                b4.write_epoch, b4.last_use, b4.last_write = epoch, serial, serial
            else:
                b4.read_epoch, b4.last_use = epoch, serial
            if w5:
                b5.write_epoch, b5.last_use, b5.last_write = epoch, serial, serial
            else:
                b5.read_epoch, b5.last_use = epoch, serial
            if w6:
                b6.write_epoch, b6.last_use, b6.last_write = epoch, serial, serial
            else:
                b6.read_epoch, b6.last_use = epoch, serial
            queue.epoch = epoch
            call = owner.call
            if call is None:
                queue.emit(kernel, flags, memory, block)
            else:
                call(addresses[flags])
            if flags & 1:
                queue.bound = kernel
                kernel.last_use, kernel.user = serial, queue
            recorded = queue.recorded = queue.recorded + 1
            if recorded >= queue.budget:
                queue.full()
                owner.submitted()
        except BaseException:
            try:
                queue.mark_dirty()
            except KeyboardInterrupt:  # another one
                queue.mark_dirty()
            raise
        finally:
            lock.release()
        for position in told:
            if args[position].__class__ is not DeviceArray:
                args[position].__vkjit_written__()
        return True

    return launch


def _with_8(shape: CallShape) -> Callable[[tuple[Any, ...]], bool]:
    i0, i1, i2, i3, i4, i5, i6, i7 = shape.arrays
    w0, w1, w2, w3, w4, w5, w6, w7 = shape.written
    names, more, blocks, look_up, overlap = shape.names, shape.more, shape.blocks, shape.entries.get, shape.overlap
    others, kinds, told, missing = shape.others, shape.kinds, shape.told, shape.missing

    def launch(args: tuple[Any, ...]) -> bool:
        for namespace, name, value in names:
            if namespace.get(name, missing) is not value:
                return False
        if blocks:
            return False
        try:
            if more is not None and not more():
                return False
            a0, a1, a2, a3, a4, a5, a6, a7 = args[i0].__vkjit_array__, args[i1].__vkjit_array__, args[i2].__vkjit_array__, args[i3].__vkjit_array__, args[i4].__vkjit_array__, args[i5].__vkjit_array__, args[i6].__vkjit_array__, args[i7].__vkjit_array__
            b0, b1, b2, b3, b4, b5, b6, b7 = a0.buffer, a1.buffer, a2.buffer, a3.buffer, a4.buffer, a5.buffer, a6.buffer, a7.buffer
            words = a0.descriptor + a1.descriptor + a2.descriptor + a3.descriptor + a4.descriptor + a5.descriptor + a6.descriptor + a7.descriptor
            key: tuple[Any, ...] = (b0.device, a0.spec_class, a1.spec_class, a2.spec_class, a3.spec_class, a4.spec_class, a5.spec_class, a6.spec_class, a7.spec_class)
            if b0 is b1 or b0 is b2 or b0 is b3 or b0 is b4 or b0 is b5 or b0 is b6 or b0 is b7 or b1 is b2 or b1 is b3 or b1 is b4 or b1 is b5 or b1 is b6 or b1 is b7 or b2 is b3 or b2 is b4 or b2 is b5 or b2 is b6 or b2 is b7 or b3 is b4 or b3 is b5 or b3 is b6 or b3 is b7 or b4 is b5 or b4 is b6 or b4 is b7 or b5 is b6 or b5 is b7 or b6 is b7:
                key += overlap((a0, a1, a2, a3, a4, a5, a6, a7))
            if others is not None:
                rest = others(args)
                key += kinds(rest)
                words += rest
            entry = look_up(key)
        except (AttributeError, TypeError, ValueError):  # no array, a constant that can't be a key, an emptied name
            return False
        if entry is None:
            return False
        (
            current, owner, kernel, constants, left, right, mixed, pick, over, wide, most, grid, deep, x, pack, place,
            memory, addresses, block, fresh, claim,
        ) = entry
        if fresh is not None and not fresh():
            return False
        if constants:
            words += constants
        if left is not None and (mixed or a0.shape is not a1.shape or a0.shape is not a2.shape or a0.shape is not a3.shape or a0.shape is not a4.shape or a0.shape is not a5.shape or a0.shape is not a6.shape or a0.shape is not a7.shape) and left(words) != right(words):
            return False
        if over is not None:
            x = -(-words[over] // wide)
            if not 0 < x <= most:
                return False
            if deep is not None:
                row, high, most_rows = deep
                y, z = -(-words[row] // high), 1
                if not 0 < y <= most_rows:
                    return False
        elif grid is not None:
            size = grid(words)
            if size is None:
                return False
            x, y, z = size
        queue = current.queue
        lock = queue.lock
        try:
            lock.acquire()
            if claim is not None:
                words += (claim(),)
            command = queue.command_handle or queue.open_command_handle()
            if not command:
                return False
            epoch = queue.epoch
            if b0.queue is not queue or (w0 and b0.readers is not None) or b1.queue is not queue or (w1 and b1.readers is not None) or b2.queue is not queue or (w2 and b2.readers is not None) or b3.queue is not queue or (w3 and b3.readers is not None) or b4.queue is not queue or (w4 and b4.readers is not None) or b5.queue is not queue or (w5 and b5.readers is not None) or b6.queue is not queue or (w6 and b6.readers is not None) or b7.queue is not queue or (w7 and b7.readers is not None):
                return False
            if b0.write_epoch == epoch or (w0 and b0.read_epoch == epoch) or b1.write_epoch == epoch or (w1 and b1.read_epoch == epoch) or b2.write_epoch == epoch or (w2 and b2.read_epoch == epoch) or b3.write_epoch == epoch or (w3 and b3.read_epoch == epoch) or b4.write_epoch == epoch or (w4 and b4.read_epoch == epoch) or b5.write_epoch == epoch or (w5 and b5.read_epoch == epoch) or b6.write_epoch == epoch or (w6 and b6.read_epoch == epoch) or b7.write_epoch == epoch or (w7 and b7.read_epoch == epoch):
                if queue.transferred:
                    queue.order()
                    flags, epoch = 0, queue.epoch
                else:
                    flags, epoch = 2, next(queue.group.epochs)
            else:
                flags = 0
            if queue.bound is not kernel:
                flags += 1
            try:
                if place:
                    pack(memory, place, command, x, *pick(words))
                else:
                    pack(memory, 32, y, z, command, x, *pick(words))
            except (struct.error, OverflowError):  # a number that doesn't fit; the long way says which
                return False
            serial = queue.serial
            if w0:
                b0.write_epoch, b0.last_use, b0.last_write = epoch, serial, serial
            else:
                b0.read_epoch, b0.last_use = epoch, serial
            if w1:
                b1.write_epoch, b1.last_use, b1.last_write = epoch, serial, serial
            else:
                b1.read_epoch, b1.last_use = epoch, serial
            if w2:
                b2.write_epoch, b2.last_use, b2.last_write = epoch, serial, serial
            else:
                b2.read_epoch, b2.last_use = epoch, serial
            if w3:
                b3.write_epoch, b3.last_use, b3.last_write = epoch, serial, serial
            else:
                b3.read_epoch, b3.last_use = epoch, serial
            if w4:
                b4.write_epoch, b4.last_use, b4.last_write = epoch, serial, serial
            else:
                b4.read_epoch, b4.last_use = epoch, serial
            if w5:
                b5.write_epoch, b5.last_use, b5.last_write = epoch, serial, serial
            else:
                b5.read_epoch, b5.last_use = epoch, serial
            if w6:
                b6.write_epoch, b6.last_use, b6.last_write = epoch, serial, serial
            else:
                b6.read_epoch, b6.last_use = epoch, serial
            if w7:
                b7.write_epoch, b7.last_use, b7.last_write = epoch, serial, serial
            else:
                b7.read_epoch, b7.last_use = epoch, serial
            queue.epoch = epoch
            call = owner.call
            if call is None:
                queue.emit(kernel, flags, memory, block)
            else:
                call(addresses[flags])
            if flags & 1:
                queue.bound = kernel
                kernel.last_use, kernel.user = serial, queue
            recorded = queue.recorded = queue.recorded + 1
            if recorded >= queue.budget:
                queue.full()
                owner.submitted()
        except BaseException:
            try:
                queue.mark_dirty()
            except KeyboardInterrupt:  # another one
                queue.mark_dirty()
            raise
        finally:
            lock.release()
        for position in told:
            if args[position].__class__ is not DeviceArray:
                args[position].__vkjit_written__()
        return True

    return launch


def _with_20(shape: CallShape) -> Callable[[tuple[Any, ...]], bool]:
    i0, i1, i2, i3, i4, i5, i6, i7, i8, i9, i10, i11, i12, i13, i14, i15, i16, i17, i18, i19 = shape.arrays
    w0, w1, w2, w3, w4, w5, w6, w7, w8, w9, w10, w11, w12, w13, w14, w15, w16, w17, w18, w19 = shape.written
    names, more, blocks, look_up, overlap = shape.names, shape.more, shape.blocks, shape.entries.get, shape.overlap
    others, kinds, told, missing = shape.others, shape.kinds, shape.told, shape.missing

    def launch(args: tuple[Any, ...]) -> bool:
        for namespace, name, value in names:
            if namespace.get(name, missing) is not value:
                return False
        if blocks:
            return False
        try:
            if more is not None and not more():
                return False
            a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19 = args[i0].__vkjit_array__, args[i1].__vkjit_array__, args[i2].__vkjit_array__, args[i3].__vkjit_array__, args[i4].__vkjit_array__, args[i5].__vkjit_array__, args[i6].__vkjit_array__, args[i7].__vkjit_array__, args[i8].__vkjit_array__, args[i9].__vkjit_array__, args[i10].__vkjit_array__, args[i11].__vkjit_array__, args[i12].__vkjit_array__, args[i13].__vkjit_array__, args[i14].__vkjit_array__, args[i15].__vkjit_array__, args[i16].__vkjit_array__, args[i17].__vkjit_array__, args[i18].__vkjit_array__, args[i19].__vkjit_array__
            b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, b10, b11, b12, b13, b14, b15, b16, b17, b18, b19 = a0.buffer, a1.buffer, a2.buffer, a3.buffer, a4.buffer, a5.buffer, a6.buffer, a7.buffer, a8.buffer, a9.buffer, a10.buffer, a11.buffer, a12.buffer, a13.buffer, a14.buffer, a15.buffer, a16.buffer, a17.buffer, a18.buffer, a19.buffer
            words = a0.descriptor + a1.descriptor + a2.descriptor + a3.descriptor + a4.descriptor + a5.descriptor + a6.descriptor + a7.descriptor + a8.descriptor + a9.descriptor + a10.descriptor + a11.descriptor + a12.descriptor + a13.descriptor + a14.descriptor + a15.descriptor + a16.descriptor + a17.descriptor + a18.descriptor + a19.descriptor
            key: tuple[Any, ...] = (b0.device, a0.spec_class, a1.spec_class, a2.spec_class, a3.spec_class, a4.spec_class, a5.spec_class, a6.spec_class, a7.spec_class, a8.spec_class, a9.spec_class, a10.spec_class, a11.spec_class, a12.spec_class, a13.spec_class, a14.spec_class, a15.spec_class, a16.spec_class, a17.spec_class, a18.spec_class, a19.spec_class)
            if len({id(b0), id(b1), id(b2), id(b3), id(b4), id(b5), id(b6), id(b7), id(b8), id(b9), id(b10), id(b11), id(b12), id(b13), id(b14), id(b15), id(b16), id(b17), id(b18), id(b19)}) < 20:
                key += overlap((a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19))
            if others is not None:
                rest = others(args)
                key += kinds(rest)
                words += rest
            entry = look_up(key)
        except (AttributeError, TypeError, ValueError):  # no array, a constant that can't be a key, an emptied name
            return False
        if entry is None:
            return False
        (
            current, owner, kernel, constants, left, right, mixed, pick, over, wide, most, grid, deep, x, pack, place,
            memory, addresses, block, fresh, claim,
        ) = entry
        if fresh is not None and not fresh():
            return False
        if constants:
            words += constants
        if left is not None and (mixed or a0.shape is not a1.shape or a0.shape is not a2.shape or a0.shape is not a3.shape or a0.shape is not a4.shape or a0.shape is not a5.shape or a0.shape is not a6.shape or a0.shape is not a7.shape or a0.shape is not a8.shape or a0.shape is not a9.shape or a0.shape is not a10.shape or a0.shape is not a11.shape or a0.shape is not a12.shape or a0.shape is not a13.shape or a0.shape is not a14.shape or a0.shape is not a15.shape or a0.shape is not a16.shape or a0.shape is not a17.shape or a0.shape is not a18.shape or a0.shape is not a19.shape) and left(words) != right(words):
            return False
        if over is not None:
            x = -(-words[over] // wide)
            if not 0 < x <= most:
                return False
            if deep is not None:
                row, high, most_rows = deep
                y, z = -(-words[row] // high), 1
                if not 0 < y <= most_rows:
                    return False
        elif grid is not None:
            size = grid(words)
            if size is None:
                return False
            x, y, z = size
        queue = current.queue
        lock = queue.lock
        try:
            lock.acquire()
            if claim is not None:
                words += (claim(),)
            command = queue.command_handle or queue.open_command_handle()
            if not command:
                return False
            epoch = queue.epoch
            if b0.queue is not queue or (w0 and b0.readers is not None) or b1.queue is not queue or (w1 and b1.readers is not None) or b2.queue is not queue or (w2 and b2.readers is not None) or b3.queue is not queue or (w3 and b3.readers is not None) or b4.queue is not queue or (w4 and b4.readers is not None) or b5.queue is not queue or (w5 and b5.readers is not None) or b6.queue is not queue or (w6 and b6.readers is not None) or b7.queue is not queue or (w7 and b7.readers is not None) or b8.queue is not queue or (w8 and b8.readers is not None) or b9.queue is not queue or (w9 and b9.readers is not None) or b10.queue is not queue or (w10 and b10.readers is not None) or b11.queue is not queue or (w11 and b11.readers is not None) or b12.queue is not queue or (w12 and b12.readers is not None) or b13.queue is not queue or (w13 and b13.readers is not None) or b14.queue is not queue or (w14 and b14.readers is not None) or b15.queue is not queue or (w15 and b15.readers is not None) or b16.queue is not queue or (w16 and b16.readers is not None) or b17.queue is not queue or (w17 and b17.readers is not None) or b18.queue is not queue or (w18 and b18.readers is not None) or b19.queue is not queue or (w19 and b19.readers is not None):
                return False
            if b0.write_epoch == epoch or (w0 and b0.read_epoch == epoch) or b1.write_epoch == epoch or (w1 and b1.read_epoch == epoch) or b2.write_epoch == epoch or (w2 and b2.read_epoch == epoch) or b3.write_epoch == epoch or (w3 and b3.read_epoch == epoch) or b4.write_epoch == epoch or (w4 and b4.read_epoch == epoch) or b5.write_epoch == epoch or (w5 and b5.read_epoch == epoch) or b6.write_epoch == epoch or (w6 and b6.read_epoch == epoch) or b7.write_epoch == epoch or (w7 and b7.read_epoch == epoch) or b8.write_epoch == epoch or (w8 and b8.read_epoch == epoch) or b9.write_epoch == epoch or (w9 and b9.read_epoch == epoch) or b10.write_epoch == epoch or (w10 and b10.read_epoch == epoch) or b11.write_epoch == epoch or (w11 and b11.read_epoch == epoch) or b12.write_epoch == epoch or (w12 and b12.read_epoch == epoch) or b13.write_epoch == epoch or (w13 and b13.read_epoch == epoch) or b14.write_epoch == epoch or (w14 and b14.read_epoch == epoch) or b15.write_epoch == epoch or (w15 and b15.read_epoch == epoch) or b16.write_epoch == epoch or (w16 and b16.read_epoch == epoch) or b17.write_epoch == epoch or (w17 and b17.read_epoch == epoch) or b18.write_epoch == epoch or (w18 and b18.read_epoch == epoch) or b19.write_epoch == epoch or (w19 and b19.read_epoch == epoch):
                if queue.transferred:
                    queue.order()
                    flags, epoch = 0, queue.epoch
                else:
                    flags, epoch = 2, next(queue.group.epochs)
            else:
                flags = 0
            if queue.bound is not kernel:
                flags += 1
            try:
                if place:
                    pack(memory, place, command, x, *pick(words))
                else:
                    pack(memory, 32, y, z, command, x, *pick(words))
            except (struct.error, OverflowError):  # a number that doesn't fit; the long way says which
                return False
            serial = queue.serial
            if w0:
                b0.write_epoch, b0.last_use, b0.last_write = epoch, serial, serial
            else:
                b0.read_epoch, b0.last_use = epoch, serial
            if w1:
                b1.write_epoch, b1.last_use, b1.last_write = epoch, serial, serial
            else:
                b1.read_epoch, b1.last_use = epoch, serial
            if w2:
                b2.write_epoch, b2.last_use, b2.last_write = epoch, serial, serial
            else:
                b2.read_epoch, b2.last_use = epoch, serial
            if w3:
                b3.write_epoch, b3.last_use, b3.last_write = epoch, serial, serial
            else:
                b3.read_epoch, b3.last_use = epoch, serial
            if w4:
                b4.write_epoch, b4.last_use, b4.last_write = epoch, serial, serial
            else:
                b4.read_epoch, b4.last_use = epoch, serial
            if w5:
                b5.write_epoch, b5.last_use, b5.last_write = epoch, serial, serial
            else:
                b5.read_epoch, b5.last_use = epoch, serial
            if w6:
                b6.write_epoch, b6.last_use, b6.last_write = epoch, serial, serial
            else:
                b6.read_epoch, b6.last_use = epoch, serial
            if w7:
                b7.write_epoch, b7.last_use, b7.last_write = epoch, serial, serial
            else:
                b7.read_epoch, b7.last_use = epoch, serial
            if w8:
                b8.write_epoch, b8.last_use, b8.last_write = epoch, serial, serial
            else:
                b8.read_epoch, b8.last_use = epoch, serial
            if w9:
                b9.write_epoch, b9.last_use, b9.last_write = epoch, serial, serial
            else:
                b9.read_epoch, b9.last_use = epoch, serial
            if w10:
                b10.write_epoch, b10.last_use, b10.last_write = epoch, serial, serial
            else:
                b10.read_epoch, b10.last_use = epoch, serial
            if w11:
                b11.write_epoch, b11.last_use, b11.last_write = epoch, serial, serial
            else:
                b11.read_epoch, b11.last_use = epoch, serial
            if w12:
                b12.write_epoch, b12.last_use, b12.last_write = epoch, serial, serial
            else:
                b12.read_epoch, b12.last_use = epoch, serial
            if w13:
                b13.write_epoch, b13.last_use, b13.last_write = epoch, serial, serial
            else:
                b13.read_epoch, b13.last_use = epoch, serial
            if w14:
                b14.write_epoch, b14.last_use, b14.last_write = epoch, serial, serial
            else:
                b14.read_epoch, b14.last_use = epoch, serial
            if w15:
                b15.write_epoch, b15.last_use, b15.last_write = epoch, serial, serial
            else:
                b15.read_epoch, b15.last_use = epoch, serial
            if w16:
                b16.write_epoch, b16.last_use, b16.last_write = epoch, serial, serial
            else:
                b16.read_epoch, b16.last_use = epoch, serial
            if w17:
                b17.write_epoch, b17.last_use, b17.last_write = epoch, serial, serial
            else:
                b17.read_epoch, b17.last_use = epoch, serial
            if w18:
                b18.write_epoch, b18.last_use, b18.last_write = epoch, serial, serial
            else:
                b18.read_epoch, b18.last_use = epoch, serial
            if w19:
                b19.write_epoch, b19.last_use, b19.last_write = epoch, serial, serial
            else:
                b19.read_epoch, b19.last_use = epoch, serial
            queue.epoch = epoch
            call = owner.call
            if call is None:
                queue.emit(kernel, flags, memory, block)
            else:
                call(addresses[flags])
            if flags & 1:
                queue.bound = kernel
                kernel.last_use, kernel.user = serial, queue
            recorded = queue.recorded = queue.recorded + 1
            if recorded >= queue.budget:
                queue.full()
                owner.submitted()
        except BaseException:
            try:
                queue.mark_dirty()
            except KeyboardInterrupt:  # another one
                queue.mark_dirty()
            raise
        finally:
            lock.release()
        for position in told:
            if args[position].__class__ is not DeviceArray:
                args[position].__vkjit_written__()
        return True

    return launch


MAKERS = {1: _with_1, 2: _with_2, 3: _with_3, 4: _with_4, 5: _with_5, 6: _with_6, 7: _with_7, 8: _with_8, 20: _with_20}
